// SPDX-License-Identifier: Apache-2.0
#include "collectives/tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// Whether `fd` is ready for `events` before `end`.
bool Wait(int fd, short events, Clock::time_point end) {
  for (;;) {
    const auto left =
        std::chrono::ceil<Milliseconds>(end - Clock::now()).count();
    if (left < 0) return false;
    pollfd ready = {fd, events, 0};
    const int found = poll(&ready, 1, static_cast<int>(left));
    if (found >= 0) return found > 0;
    if (errno != EINTR) return false;
  }
}

Socket NewSocket() {
  return Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

sockaddr* Address(sockaddr_in* address) {
  return reinterpret_cast<sockaddr*>(address);
}

std::string AddressText(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  return text;
}

// Beats are short, and each of them counts.
void SendAtOnce(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

std::vector<std::string> NetworkAddresses() {
  std::vector<std::string> addresses;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* i = all; i; i = i->ifa_next) {
    if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET) continue;
    if ((i->ifa_flags & IFF_LOOPBACK) || !(i->ifa_flags & IFF_UP)) continue;
    sockaddr_in address;
    std::memcpy(&address, i->ifa_addr, sizeof address);
    addresses.push_back(AddressText(address));
  }
  freeifaddrs(all);
  return addresses;
}

Socket ListenAt(const std::string& address_text, int port) {
  Socket listener = NewSocket();
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  // Connections of an earlier job may not have expired yet.
  const int on = 1;
  if (!listener.open() ||
      inet_pton(AF_INET, address_text.c_str(), &address.sin_addr) != 1 ||
      setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
      bind(listener.fd(), Address(&address), sizeof address) != 0 ||
      listen(listener.fd(), SOMAXCONN) != 0) {
    const int error = errno;
    listener = Socket();
    errno = error;
  }
  return listener;
}

Socket Listen(const std::string& address_text, int* port) {
  Socket listener = ListenAt(address_text, 0);
  sockaddr_in address = {};
  socklen_t size = sizeof address;
  Check(listener.open() &&
            getsockname(listener.fd(), Address(&address), &size) == 0,
        "[TCP] expected a free port of ", address_text, ", got ",
        std::strerror(errno));
  *port = ntohs(address.sin_port);
  return listener;
}

bool IsLoopback(const std::string& host) {
  const std::vector<std::string> addresses = Resolve(host);
  return !addresses.empty() &&
         std::ranges::all_of(addresses, [](const std::string& address) {
           return address.starts_with("127.");
         });
}

std::string OwnAddress(const Socket& socket) {
  sockaddr_in address = {};
  socklen_t size = sizeof address;
  getsockname(socket.fd(), Address(&address), &size);
  return AddressText(address);
}

std::string PeerOf(const Socket& socket) {
  sockaddr_in address = {};
  socklen_t size = sizeof address;
  getpeername(socket.fd(), Address(&address), &size);
  return Concat(AddressText(address), ":", ntohs(address.sin_port));
}

std::vector<std::string> Resolve(const std::string& host) {
  std::vector<std::string> addresses;
  addrinfo wanted = {}, *found = nullptr;
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) return {};
  for (const addrinfo* i = found; i; i = i->ai_next) {
    sockaddr_in address;
    std::memcpy(&address, i->ai_addr, sizeof address);
    addresses.push_back(AddressText(address));
  }
  freeaddrinfo(found);
  return addresses;
}

Socket Connect(const std::vector<std::string>& addresses, int port,
               Milliseconds patience) {
  for (const std::string& text : addresses) {
    Socket socket = NewSocket();
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    if (!socket.open() ||
        inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1) {
      continue;
    }
    SendAtOnce(socket);
    int error = 0;
    socklen_t size = sizeof error;
    const auto end = Clock::now() + patience / addresses.size();
    if (connect(socket.fd(), Address(&address), sizeof address) == 0 ||
        (errno == EINPROGRESS && Wait(socket.fd(), POLLOUT, end) &&
         getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
         error == 0)) {
      return socket;
    }
  }
  return Socket();
}

Socket Accept(const Socket& listener, Milliseconds patience) {
  if (!Wait(listener.fd(), POLLIN, Clock::now() + patience)) return Socket();
  Socket socket(
      accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.open()) SendAtOnce(socket);
  return socket;
}

bool SendNow(const Socket& to, const void* data, size_t bytes) {
  return send(to.fd(), data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes);
}

bool SendAll(const Socket& to, const void* data, size_t bytes,
             Milliseconds patience) {
  const auto* at = static_cast<const char*>(data);
  const auto end = Clock::now() + patience;
  while (bytes > 0) {
    if (!Wait(to.fd(), POLLOUT, end)) return false;
    const ssize_t sent = send(to.fd(), at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return false;
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool ReceiveAll(const Socket& from, void* data, size_t bytes,
                Milliseconds patience) {
  auto* at = static_cast<char*>(data);
  const auto end = Clock::now() + patience;
  while (bytes > 0) {
    if (!Wait(from.fd(), POLLIN, end)) return false;
    const ssize_t got = recv(from.fd(), at, bytes, MSG_DONTWAIT);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace onnx_fp8
