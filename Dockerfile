# The server, for a CPU (default) or for CUDA:
#   docker build -t mineru-diffusion .
#   docker build -t mineru-diffusion:cuda --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu126 .
# The CUDA libraries come with torch's wheels; the host needs the driver and the NVIDIA container toolkit only.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim-bookworm AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /src
COPY constraints.txt ./
# torch first, in a layer of its own: it is by far the largest, and changes least. Its version is in constraints.txt.
# hadolint ignore=DL3013
RUN pip install --index-url "${TORCH_INDEX}" --constraint constraints.txt torch
COPY pyproject.toml README.md LICENSE ./
COPY examples/report.pdf ./examples/
COPY src ./src
RUN pip install --constraint constraints.txt '.[serve]'

FROM python:${PYTHON}-slim-bookworm
# Libraries that the layout detector's image code loads.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends -y libgl1 libglib2.0-0 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 server \
    && install --directory --owner=server --group=server --mode=0700 /data
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1
USER 10001
WORKDIR /home/server
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
# SIGTERM is what the server's orderly end listens to, and Docker's default.
ENTRYPOINT ["mineru-diffusion", "serve", "--host", "0.0.0.0", "--port", "8000", "--data-dir", "/data"]
