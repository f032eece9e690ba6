// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"

namespace onnx_fp8 {

// Owns a socket. Child processes do not inherit it.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}

  int fd() const { return fd_.get(); }
  bool open() const { return fd() >= 0; }

 private:
  Descriptor fd_;
};

// The IPv4 addresses of this machine's networks, without the loopback.
std::vector<std::string> NetworkAddresses();

// A socket that listens at `port` of an IPv4 address of this machine; 0.0.0.0:
// all addresses. Closed if the port is taken or needs other rights, or if the
// machine does not have the address; errno says so.
Socket ListenAt(const std::string& address, int port);

// The same at a free port. Errors: the system's.
Socket Listen(const std::string& address, int* port);

inline constexpr char kLoopback[] = "127.0.0.1";

// Whether `host` means this machine without a network: all of its addresses
// begin with 127.
bool IsLoopback(const std::string& host);

// The IPv4 addresses of a host by its name or address; none if it is unknown.
std::vector<std::string> Resolve(const std::string& host);

// The address of this side, and "address:port" of the other one.
std::string OwnAddress(const Socket& socket);
std::string PeerOf(const Socket& socket);

// Tries one address after the other, each for a part of `patience`. Closed if
// none answers.
Socket Connect(const std::vector<std::string>& addresses, int port,
               std::chrono::milliseconds patience);

// The next connection; closed if there is none within `patience`.
Socket Accept(const Socket& listener, std::chrono::milliseconds patience);

// Whether all bytes were sent; it does not wait for room.
bool SendNow(const Socket& to, const void* data, size_t bytes);

// Whether all bytes were sent within `patience`.
bool SendAll(const Socket& to, const void* data, size_t bytes,
             std::chrono::milliseconds patience);

// Whether `bytes` came within `patience`.
bool ReceiveAll(const Socket& from, void* data, size_t bytes,
                std::chrono::milliseconds patience);

}  // namespace onnx_fp8
