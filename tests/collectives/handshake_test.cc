// SPDX-License-Identifier: Apache-2.0
#include "collectives/handshake.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kMostText = 100;
constexpr Ends kEnds = {.size = 3, .guest = 2, .host = 0};
const Pact kPact = {"a secret of the job", Channel::kMeeting, 7};

// A host that takes `count` guests, on a thread of its own.
class HostOf {
 public:
  explicit HostOf(size_t count, const Pact& pact = kPact, int host = 0,
                  milliseconds patience = seconds(30))
      : reception_(Listen(kLoopback, &port_), pact, host, kMostText,
                   [this](const std::string& text) { said_.push_back(text); }),
        thread_([this, count, patience] {
          const auto end = Clock::now() + patience;
          while (guests_.size() < count) {
            std::optional<Guest> guest = reception_.Next(end);
            if (!guest) return;
            guests_.push_back(std::move(*guest));
          }
        }) {}
  ~HostOf() {
    if (thread_.joinable()) thread_.join();
  }

  Socket Visit() const {
    Socket socket = Connect({kLoopback}, port_, seconds(10));
    EXPECT_TRUE(socket.open());
    return socket;
  }
  const std::vector<Guest>& Guests() {
    if (thread_.joinable()) thread_.join();
    return guests_;
  }
  // REQUIRES: Guests.
  const std::vector<std::string>& said() const { return said_; }

 private:
  int port_ = 0;
  std::vector<std::string> said_;
  std::vector<Guest> guests_;
  Reception reception_;
  std::thread thread_;
};

Greeted Come(const HostOf& host, const Pact& pact = kPact,
             const Ends& ends = kEnds, const std::string& text = "hello") {
  return Introduce(host.Visit(), pact, ends, text, seconds(10));
}

TEST(HandshakeTest, BothSidesKnowTheSecret) {
  for (const char* secret : {"a secret of the job", ""}) {
    Pact pact = kPact;
    pact.secret = secret;
    HostOf host(2, pact);
    EXPECT_EQ(Come(host, pact), Greeted::kWelcome);
    EXPECT_EQ(Come(host, pact, {3, 1, 0}, ""), Greeted::kWelcome);
    const std::vector<Guest>& guests = host.Guests();
    ASSERT_EQ(guests.size(), 2u);
    EXPECT_EQ(guests[0].size, 3);
    EXPECT_EQ(guests[0].rank, 2);
    EXPECT_EQ(guests[0].text, "hello");
    EXPECT_EQ(guests[1].rank, 1);
    EXPECT_EQ(guests[1].text, "");
    EXPECT_TRUE(host.said().empty());
  }
}

TEST(HandshakeTest, StrangersAreDroppedAndSaidOnce) {
  HostOf host(1);
  Pact pact = kPact;
  pact.secret = "another secret of a job";
  EXPECT_EQ(Come(host, pact), Greeted::kWithAnotherSecret);
  pact.secret = "";
  EXPECT_EQ(Come(host, pact), Greeted::kWithAnotherSecret);
  pact = kPact;
  pact.channel = Channel::kData;
  EXPECT_EQ(Come(host, pact), Greeted::kNotAtAll);
  EXPECT_EQ(Come(host, kPact, {3, 2, 1}), Greeted::kNotAtAll);
  EXPECT_EQ(Come(host, kPact, kEnds, std::string(kMostText + 1, 'x')),
            Greeted::kNotAtAll);
  pact = kPact;
  pact.job = 8;
  EXPECT_EQ(Come(host, pact), Greeted::kNotAtAll);
  EXPECT_EQ(Come(host), Greeted::kWelcome);
  EXPECT_EQ(host.Guests().size(), 1u);
  ASSERT_EQ(host.said().size(), 1u);
  EXPECT_TRUE(host.said()[0].starts_with(
      "rank 0 has dropped a connection from 127.0.0.1:"))
      << host.said()[0];
}

// What a guest sends, to be changed and sent by hand.
struct Sent {
  Hello hello = {};
  Code code = {};
  uint64_t bytes = 0;
};

// Hears the host's challenge to `hello`.
std::pair<Code, Code> Hear(const Socket& socket, const Hello& hello) {
  struct {
    uint64_t magic;
    Code nonce, code;
  } challenge = {};
  EXPECT_TRUE(SendAll(socket, &hello, sizeof hello, seconds(10)));
  EXPECT_TRUE(ReceiveAll(socket, &challenge, sizeof challenge, seconds(10)));
  return {challenge.nonce, challenge.code};
}

bool IsDropped(const Socket& socket) {
  char byte;
  return !ReceiveAll(socket, &byte, 1, seconds(10));
}

constexpr uint64_t kHelloMagic = 0x33'38'70'66'78'6e'6e'6f;

std::string Transcript(const char* side, const Hello& hello,
                       const Code& nonce) {
  std::string text = side;
  text += '\0';
  text.append(reinterpret_cast<const char*>(&hello), sizeof hello);
  text.append(reinterpret_cast<const char*>(nonce.data()), nonce.size());
  return text;
}

TEST(HandshakeTest, CodesServeOneConnection) {
  HostOf host(2);
  const Hello hello = {kHelloMagic, 7, Channel::kMeeting, 3, 2, 0, {}};
  // The host proves itself at once, with a fresh nonce each time.
  const Socket first = host.Visit(), second = host.Visit();
  const auto [nonce, host_code] = Hear(first, hello);
  EXPECT_EQ(host_code, Hmac(kPact.secret, Transcript("host", hello, nonce)));
  const auto [other_nonce, other_code] = Hear(second, hello);
  EXPECT_NE(nonce, other_nonce);
  EXPECT_NE(host_code, other_code);
  // A guest's code is good for its own connection alone.
  const Sent proof = {
      {}, Hmac(kPact.secret, Transcript("guest", hello, nonce)), 0};
  for (const Socket* to : {&second, &first}) {
    SendAll(*to, &proof.code, sizeof proof.code, seconds(10));
    SendAll(*to, &proof.bytes, sizeof proof.bytes, seconds(10));
    if (to == &second) {
      EXPECT_TRUE(IsDropped(*to));
    }
  }
  // Nor does the host's code serve a guest.
  const Socket third = host.Visit();
  const Sent echo = {{}, Hear(third, hello).second, 0};
  SendAll(third, &echo.code, sizeof echo.code, seconds(10));
  SendAll(third, &echo.bytes, sizeof echo.bytes, seconds(10));
  EXPECT_TRUE(IsDropped(third));
  EXPECT_EQ(Come(host), Greeted::kWelcome);
  EXPECT_EQ(host.Guests().size(), 2u);
}

TEST(HandshakeTest, LengthsAreNotBelieved) {
  HostOf host(1);
  const Socket socket = host.Visit();
  const Hello hello = {kHelloMagic, 7, Channel::kMeeting, 3, 2, 0, {}};
  const Sent proof = {
      {},
      Hmac(kPact.secret, Transcript("guest", hello, Hear(socket, hello).first)),
      uint64_t{1} << 62};
  SendAll(socket, &proof.code, sizeof proof.code, seconds(10));
  SendAll(socket, &proof.bytes, sizeof proof.bytes, seconds(10));
  EXPECT_TRUE(IsDropped(socket));
  EXPECT_EQ(Come(host), Greeted::kWelcome);
}

// More of them than there are slots; a rank does not wait for any.
TEST(HandshakeTest, SilentConnectionsHoldNobodyUp) {
  HostOf host(2, kPact, 0, seconds(4));
  std::vector<Socket> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(host.Visit());
  for (size_t i = 0; i < silent.size(); i += 2) {
    SendNow(silent[i], "GET / HTTP/1.1\r\n", 16);  // half a hello
  }
  EXPECT_EQ(Come(host), Greeted::kWelcome);
  const Pact other = {"another secret of a job", Channel::kMeeting, 7};
  EXPECT_EQ(Come(host, other), Greeted::kWithAnotherSecret);
  EXPECT_EQ(Come(host), Greeted::kWelcome);
  EXPECT_EQ(host.Guests().size(), 2u);
}

// A host without the secret learns nothing but that a guest has come.
TEST(HandshakeTest, AGuestDoesNotTrustAnyHost) {
  int port = 0;
  const Socket listener = Listen(kLoopback, &port);
  std::string heard;
  std::thread impostor([&] {
    const Socket socket = Accept(listener, seconds(10));
    Hello hello;
    ReceiveAll(socket, &hello, sizeof hello, seconds(10));
    char challenge[72] = {};
    const uint64_t magic = 0x34'38'70'66'78'6e'6e'6f;
    std::memcpy(challenge, &magic, sizeof magic);
    SendAll(socket, challenge, sizeof challenge, seconds(10));
    char byte;
    while (ReceiveAll(socket, &byte, 1, seconds(10))) heard += byte;
  });
  {
    const Socket socket = Connect({kLoopback}, port, seconds(10));
    EXPECT_EQ(Introduce(socket, kPact, kEnds, "my place", seconds(10)),
              Greeted::kWithAnotherSecret);
  }
  impostor.join();
  EXPECT_EQ(heard, "");
}

}  // namespace
}  // namespace onnx_fp8
