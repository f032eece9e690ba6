# SPDX-License-Identifier: Apache-2.0
#
# libonnx_fp8_crypto.so, the only part that has OpenSSL's libcrypto inside. The
# program opens it when there are several ranks. libcrypto is linked statically:
# a wheel needs none of the system, and none of a host program is mixed up with
# it.
set(OPENSSL_USE_STATIC_LIBS ON)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)
opened_library(onnx_fp8_crypto collectives/crypto.map
  collectives/crypto_module.cc)
target_link_libraries(onnx_fp8_crypto PRIVATE our_flags OpenSSL::Crypto
  ${CMAKE_DL_LIBS})
# Whatever is linked with the ranks may open it.
add_dependencies(collectives onnx_fp8_crypto)
