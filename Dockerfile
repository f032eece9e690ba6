# SPDX-License-Identifier: Apache-2.0
# The program onnx-fp8 and what it needs at run time.
FROM debian:12 AS build
COPY . /onnx_fp8
WORKDIR /onnx_fp8
RUN ./dev install /prefix

FROM debian:12
RUN apt-get update && apt-get install -y --no-install-recommends \
    libstdc++6 libssl3 zlib1g && rm -rf /var/lib/apt/lists/*
COPY --from=build /prefix /usr/local
ENTRYPOINT ["onnx-fp8"]
