# SPDX-License-Identifier: Apache-2.0
"""Machines that are slower than others: found, answered, measured whether that helped. Pure.

pace      own times of all ranks, as they are told; what follows from them are events
excess    when that is no chance any more
answer    what the job does about it
known     what the job keeps of it
"""
