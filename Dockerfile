# The explorer as a public server, on the CPU:
#
#     docker build -t eab-explorer . && docker run -p 8501:8501 -v eab-data:/data eab-explorer
#
# For NVIDIA GPUs: --build-arg DEVICE=cuda, and docker run --gpus all.
FROM python:3.11-slim AS build
ARG DEVICE=cpu
WORKDIR /source
COPY requirements.lock requirements.txt ./
# The CPU build is locked: pip installs nothing whose hash is not in the file.
RUN python -m venv /opt/eab \
    && if [ "$DEVICE" = cpu ]; then \
        /opt/eab/bin/pip install --no-cache-dir --require-hashes -r requirements.lock \
            --extra-index-url https://download.pytorch.org/whl/cpu; \
    else \
        sed '/^-e/d' requirements.txt > pinned.txt \
        && /opt/eab/bin/pip install --no-cache-dir -r pinned.txt; \
    fi
COPY pyproject.toml hatch_build.py README.md LICENSE THIRD_PARTY.md ./
COPY eab eab
COPY app app
COPY pages pages
COPY assets assets
RUN /opt/eab/bin/pip install --no-cache-dir --no-deps . \
    && EAB_MODELS=/opt/eab/models /opt/eab/bin/eab models get smollm2

FROM python:3.11-slim
# Hosts that choose the user choose this number.
RUN useradd --uid 1000 --create-home eab && install -d -o eab /data
COPY --from=build /opt/eab /opt/eab
# All that is written goes to the one volume; the rest may be read-only.
ENV EAB_PORT=8501 \
    EAB_STORE=/data/runs.sqlite \
    EAB_MODELS=/opt/eab/models \
    HF_HOME=/data/huggingface \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER eab
WORKDIR /data
VOLUME /data
EXPOSE 8501
HEALTHCHECK --start-period=30s CMD ["/opt/eab/bin/python", "-c", "import os, urllib.request as request; request.urlopen(f'http://127.0.0.1:{os.environ[\"EAB_PORT\"]}/healthz', timeout=5)"]
ENTRYPOINT ["/opt/eab/bin/eab", "app", "--address", "0.0.0.0"]
CMD ["--public"]
