cd /ci/fresh
for t in "$@"; do echo "== $t"; ./build/asan/$t --gtest_brief=1 2>&1 | tail -60; done
