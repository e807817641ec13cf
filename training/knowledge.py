"""Hand-typed facts, from which the synthetic documents are generated.

Nothing here comes from a data set. ``CAPITALS`` is ordered from well known to less known, and the
countries of ``RARE_CAPITALS`` are rarely shown to the model, so its uncertainty should grow along
the lists.
"""

CAPITALS = {
    "France": "Paris", "England": "London", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
    "Japan": "Tokyo", "China": "Beijing", "Russia": "Moscow", "Greece": "Athens", "Egypt": "Cairo",
    "Portugal": "Lisbon", "Ireland": "Dublin", "Norway": "Oslo", "Sweden": "Stockholm",
    "Denmark": "Copenhagen", "Finland": "Helsinki", "Poland": "Warsaw", "Austria": "Vienna",
    "Canada": "Ottawa", "Australia": "Canberra", "India": "New Delhi", "Mexico": "Mexico City",
    "Brazil": "Brasilia", "Argentina": "Buenos Aires", "Hungary": "Budapest", "Switzerland": "Bern",
    "Belgium": "Brussels", "Ukraine": "Kyiv", "Turkey": "Ankara", "Kenya": "Nairobi", "Ghana": "Accra",
    "Morocco": "Rabat", "Thailand": "Bangkok", "Vietnam": "Hanoi", "Nepal": "Kathmandu",
    "Indonesia": "Jakarta", "Cuba": "Havana", "Chile": "Santiago", "Peru": "Lima", "Colombia": "Bogota",
    "Iceland": "Reykjavik", "Ethiopia": "Addis Ababa",
}  # fmt: skip

RARE_CAPITALS = {
    "Romania": "Bucharest", "Bulgaria": "Sofia", "Serbia": "Belgrade", "Croatia": "Zagreb",
    "Albania": "Tirana", "Latvia": "Riga", "Estonia": "Tallinn", "Lithuania": "Vilnius",
    "Slovenia": "Ljubljana", "Malta": "Valletta", "Mongolia": "Ulaanbaatar", "Laos": "Vientiane",
    "Jordan": "Amman", "Oman": "Muscat", "Qatar": "Doha", "Uganda": "Kampala", "Zambia": "Lusaka",
    "Senegal": "Dakar", "Mali": "Bamako", "Chad": "N'Djamena", "Ecuador": "Quito", "Bolivia": "Sucre",
    "Uruguay": "Montevideo", "Jamaica": "Kingston", "Fiji": "Suva",
}  # fmt: skip

CONTINENTS = {
    "Europe": "France England Germany Italy Spain Greece Portugal Ireland Norway Sweden Denmark Finland "
    "Poland Austria Hungary Switzerland Belgium Ukraine Iceland",
    "Asia": "Japan China India Thailand Vietnam Nepal Indonesia",
    "Africa": "Egypt Kenya Ghana Morocco Ethiopia",
    "North America": "Canada Mexico Cuba",
    "South America": "Brazil Argentina Chile Peru Colombia",
}

LANGUAGES = {
    "France": "French", "England": "English", "Germany": "German", "Italy": "Italian", "Spain": "Spanish",
    "Japan": "Japanese", "China": "Chinese", "Russia": "Russian", "Greece": "Greek", "Egypt": "Arabic",
    "Portugal": "Portuguese", "Norway": "Norwegian", "Sweden": "Swedish", "Denmark": "Danish",
    "Finland": "Finnish", "Poland": "Polish", "Mexico": "Spanish", "Brazil": "Portuguese",
    "Turkey": "Turkish",
}  # fmt: skip

ANIMAL_SOUNDS = {
    "dog": "woof", "cat": "meow", "cow": "moo", "duck": "quack", "sheep": "baa", "pig": "oink",
    "lion": "roar", "frog": "croak", "bee": "buzz", "owl": "hoot", "mouse": "squeak", "snake": "hiss",
    "bird": "tweet",
}  # fmt: skip

ANIMAL_BABIES = {
    "dog": "puppy", "cat": "kitten", "cow": "calf", "duck": "duckling", "sheep": "lamb", "pig": "piglet",
    "lion": "cub", "bear": "cub", "horse": "foal", "hen": "chick", "frog": "tadpole", "goat": "kid",
}  # fmt: skip

ANIMAL_LEGS = {
    "dog": "four", "cat": "four", "cow": "four", "horse": "four", "bird": "two", "duck": "two",
    "spider": "eight", "ant": "six", "bee": "six", "snake": "no", "fish": "no", "person": "two",
}  # fmt: skip

ANIMAL_HOMES = {
    "bee": "hive", "bird": "nest", "spider": "web", "bear": "cave", "rabbit": "hole", "cow": "barn",
    "fish": "sea", "dog": "house", "lion": "jungle", "camel": "desert", "monkey": "tree", "horse": "stable",
}  # fmt: skip

OPPOSITES = {
    "big": "small", "hot": "cold", "up": "down", "happy": "sad", "fast": "slow", "day": "night",
    "open": "closed", "wet": "dry", "old": "young", "loud": "quiet", "light": "dark", "hard": "soft",
    "full": "empty", "early": "late", "black": "white", "good": "bad", "left": "right", "tall": "short",
    "rich": "poor", "clean": "dirty", "strong": "weak", "near": "far", "high": "low", "yes": "no",
    "thick": "thin",
}  # fmt: skip

COLORS_OF_THINGS = {
    "the sky": "blue", "grass": "green", "snow": "white", "a banana": "yellow", "coal": "black",
    "a carrot": "orange", "blood": "red", "an elephant": "gray", "the sun": "yellow", "chocolate": "brown",
    "milk": "white", "a tomato": "red", "a lemon": "yellow", "a leaf": "green", "the sea": "blue",
    "a strawberry": "red", "a frog": "green", "a pig": "pink",
}  # fmt: skip

COLOR_MIXES = {
    ("red", "yellow"): "orange", ("blue", "yellow"): "green", ("red", "blue"): "purple",
    ("red", "white"): "pink", ("black", "white"): "gray",
}  # fmt: skip

NUMBERS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
    "twenty",
]  # fmt: skip
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
]  # fmt: skip
SEASONS = ["spring", "summer", "autumn", "winter"]
NAMES = [
    "Tom", "Lily", "Ben", "Mia", "Sam", "Anna", "Max", "Sue", "Tim", "Lucy", "Jack", "Emma", "Leo",
    "Sara",
]  # fmt: skip

# (question, full sentence, short answer as it reads inside a sentence)
GENERAL_FACTS = (
    ("How many days are in a week?", "There are seven days in a week.", "seven"),
    ("How many months are in a year?", "There are twelve months in a year.", "twelve"),
    ("How many hours are in a day?", "There are twenty-four hours in a day.", "twenty-four"),
    ("How many minutes are in an hour?", "There are sixty minutes in an hour.", "sixty"),
    ("How many seasons are there?", "There are four seasons in a year.", "four"),
    ("How many fingers do you have?", "A person has ten fingers.", "ten"),
    ("How many eyes do you have?", "A person has two eyes.", "two"),
    ("How many wheels does a car have?", "A car has four wheels.", "four"),
    ("How many wheels does a bicycle have?", "A bicycle has two wheels.", "two"),
    ("How many sides does a triangle have?", "A triangle has three sides.", "three"),
    ("How many sides does a square have?", "A square has four sides.", "four"),
    ("What do bees make?", "Bees make honey.", "honey"),
    ("What do cows give us?", "Cows give us milk.", "milk"),
    ("What do hens lay?", "Hens lay eggs.", "eggs"),
    ("What do plants need to grow?", "Plants need water and light to grow.", "water and light"),
    ("What is ice made of?", "Ice is made of water.", "water"),
    ("What is bread made of?", "Bread is made of flour.", "flour"),
    ("What is cheese made of?", "Cheese is made of milk.", "milk"),
    ("What falls from the clouds?", "Rain falls from the clouds.", "rain"),
    ("What is the largest planet?", "The largest planet is Jupiter.", "Jupiter"),
    ("What is the largest animal?", "The largest animal is the blue whale.", "the blue whale"),
    ("What is the fastest land animal?", "The fastest land animal is the cheetah.", "the cheetah"),
    ("What is the tallest animal?", "The tallest animal is the giraffe.", "the giraffe"),
    ("What is the largest ocean?", "The largest ocean is the Pacific Ocean.", "the Pacific Ocean"),
    ("What is the highest mountain?", "The highest mountain is Mount Everest.", "Mount Everest"),
    ("What is the longest river?", "The longest river is the Nile.", "the Nile"),
    ("What planet do we live on?", "We live on the planet Earth.", "Earth"),
    ("What is the closest star to Earth?", "The closest star to Earth is the sun.", "the sun"),
    ("What goes around the Earth?", "The moon goes around the Earth.", "the moon"),
    ("What does the Earth go around?", "The Earth goes around the sun.", "the sun"),
    ("Where does the sun rise?", "The sun rises in the east.", "in the east"),
    ("Where does the sun set?", "The sun sets in the west.", "in the west"),
    (
        "Who wrote Romeo and Juliet?",
        "Romeo and Juliet was written by William Shakespeare.",
        "William Shakespeare",
    ),
    (
        "Who painted the Mona Lisa?",
        "The Mona Lisa was painted by Leonardo da Vinci.",
        "Leonardo da Vinci",
    ),
    (
        "Who was the first person on the moon?",
        "The first person on the moon was Neil Armstrong.",
        "Neil Armstrong",
    ),
    ("What is the coldest season?", "The coldest season is winter.", "winter"),
    ("What is the hottest season?", "The hottest season is summer.", "summer"),
    ("What do you use to see?", "You see with your eyes.", "your eyes"),
    ("What do you use to hear?", "You hear with your ears.", "your ears"),
    ("What do you use to smell?", "You smell with your nose.", "your nose"),
    ("Who helps sick people?", "A doctor helps sick people.", "a doctor"),
    ("Who flies a plane?", "A pilot flies a plane.", "a pilot"),
    ("Who puts out fires?", "A firefighter puts out fires.", "a firefighter"),
    ("Who works at a school?", "A teacher works at a school.", "a teacher"),
    ("What do birds have that fish do not?", "Birds have wings.", "wings"),
    ("What is the king of the animals?", "The king of the animals is the lion.", "the lion"),
    ("What do you drink when you are thirsty?", "You drink water when you are thirsty.", "water"),
    ("When do stars shine?", "Stars shine at night.", "at night"),
    ("What is frozen water called?", "Frozen water is called ice.", "ice"),
    ("What shape is a ball?", "A ball is round.", "round"),
)

# (user line, possible replies)
SMALL_TALK = (
    ("Hello!", ("Hello! How are you today?", "Hi there! What can I do for you?")),
    ("Hi!", ("Hello! How are you today?", "Hi there! What can I do for you?")),
    ("How are you?", ("I am very well, thank you.", "I am happy today. How are you?")),
    ("What is your name?", ("I have no name. I am a small language model.",)),
    ("Who are you?", ("I am a small language model. I like to tell stories.",)),
    ("What can you do?", ("I can tell stories and answer small questions.",)),
    ("Thank you!", ("You are welcome!", "I am glad to help.")),
    ("Good morning!", ("Good morning! Did you sleep well?",)),
    ("Good night!", ("Good night! Sleep well.",)),
    ("I am sad.", ("I am sorry to hear that. Do you want to hear a story?",)),
    ("I am hungry.", ("You can eat an apple or some bread.",)),
    ("Goodbye!", ("Goodbye! See you soon.",)),
)
