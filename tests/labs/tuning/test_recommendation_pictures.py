"""The sentences of a recommendation say what it rests on, and whether it held."""

from cells import cell

from eab.labs.tuning import recommendation_pictures as words_of
from eab.labs.tuning.recommendation import measured_means, recommend


def test_a_recommendation_says_what_it_rests_on_and_whether_it_held() -> None:
    pilot = [
        cell(one, seed, paths=count + seed, tokens=20 * count + 10 * seed)
        for one, count in ((0.5, 20), (1.0, 10))
        for seed in (1, 2, 3)
    ]
    found = recommend(pilot, "paths", 12, check_seeds=3)
    words = words_of.recommendation_sentence(found)
    assert words.startswith("Threshold 1 nats, for about 12 paths: 12 paths (8 to 16) for 220")
    assert "Predicted from 1 prompt and 3 seeds" in words
    assert "The next threshold" not in words
    between = words_of.recommendation_sentence(recommend(pilot, "paths", 15))
    assert "The next threshold, 0.5 nats, gives 22 paths." in between
    star = words_of.pilot_figure(pilot, found).data[1]
    assert (list(star.x), list(star.y)) == ([1.0], [12.0])
    assert words_of.check_sentence(found, {}).startswith("Not measured yet")
    checks = [cell(1.0, seed, paths=12 + seed % 2, tokens=220 + seed) for seed in (7, 8, 9)]
    near = measured_means(checks)
    assert "both inside" in words_of.check_sentence(found, near)
    assert [row[3] for row in words_of.check_rows(found, near)] == ["yes", "yes"]
    far = measured_means([cell(1.0, seed, paths=40, tokens=220) for seed in (7, 8, 9)])
    assert "paths are outside" in words_of.check_sentence(found, far)
    one = recommend(pilot[:1], "paths", 12)
    assert "which has no interval" in words_of.recommendation_sentence(one)
    assert "has no interval" in words_of.check_sentence(one, near)
