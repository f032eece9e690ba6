# SPDX-License-Identifier: Apache-2.0
# The program onnx-fp8 on debian:12, which has all system libraries that it
# needs.
FROM debian:12 AS build
COPY . /onnx_fp8
WORKDIR /onnx_fp8
RUN ./dev install /prefix

FROM debian:12
COPY --from=build /prefix/bin/onnx-fp8 /usr/local/bin/
COPY --from=build /prefix/lib/libonnx_fp8_crypto.so /usr/local/lib/
WORKDIR /work
ENTRYPOINT ["onnx-fp8"]
