# SPDX-License-Identifier: Apache-2.0
"""Parts of ./dev bench. Only modules named torch_*, ort_* and blas_* need more
than the test environment; each of them runs as a process of its own."""
