# leech in a container; docs/install.md says how to build and run it.
#   DEVICE=cpu   for machines without a GPU (default)
#   DEVICE=cuda  for NVIDIA GPUs; torch brings the CUDA libraries, the host the driver
#   TORCH_INDEX  address of an index that holds the builds of torch for that device, where pip's own does not
ARG PYTHON_VERSION=3.11

FROM python:${PYTHON_VERSION}-slim-bookworm AS build
ARG DEVICE=cpu
ARG TORCH_INDEX=
RUN python -m venv /opt/leech
ENV PATH=/opt/leech/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
COPY pyproject.toml requirements.lock README.md LICENSE ./
# What leech needs to run, in the versions of the lock; what only its tests need stays out.
RUN python -m pip install --constraint requirements.lock setuptools \
    && python -m pip install --constraint requirements.lock ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} torch
COPY src src
RUN python -m pip install --no-build-isolation --constraint requirements.lock .
# A build of torch for the other device would only show on the machine that needs it.
RUN case "$DEVICE" in \
        cpu) python -c "import torch; print('torch', torch.__version__, 'with CUDA libraries:', torch.version.cuda)" ;; \
        cuda) python -c "import torch; assert torch.version.cuda, 'this torch has no CUDA; give another TORCH_INDEX'" ;; \
        *) echo "DEVICE is cpu or cuda, not $DEVICE" >&2; exit 1 ;; \
    esac \
    && leech --version

FROM python:${PYTHON_VERSION}-slim-bookworm
COPY --from=build /opt/leech /opt/leech
ENV PATH=/opt/leech/bin:$PATH PYTHONUNBUFFERED=1 NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN useradd --uid 1000 --create-home leech && install --directory --owner leech /data
USER 1000
WORKDIR /data
ENTRYPOINT ["leech"]
CMD ["--help"]
