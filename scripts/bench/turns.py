# SPDX-License-Identifier: Apache-2.0
"""The side of a peer's process: it trains when it is told to and sleeps
otherwise, so that several processes can take turns. Both directions are lines
of JSON."""
import json
import os
import resource
import sys
import time


def peak_rss():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def serve(prepare):
    """`prepare()` returns a function that does one step and returns its loss,
    and facts about the process. Answers each {"steps": n} with n losses and
    seconds."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries goes to the log

    def reply(message):
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    step, facts = prepare()
    reply({**facts, "rss_before_training": peak_rss()})
    for line in sys.stdin:
        losses, seconds = [], []
        for _ in range(json.loads(line)["steps"]):
            begin = time.perf_counter()
            losses.append(float(step()))
            seconds.append(time.perf_counter() - begin)
        reply({"losses": losses, "seconds": seconds, "peak_rss": peak_rss()})
