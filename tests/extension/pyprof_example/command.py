# SPDX-License-Identifier: Apache-2.0
"""`pyprof count FILE`: the number of kernels."""


def add_arguments(parser):
    parser.description = "Print the number of kernels."
    parser.add_argument("file")


def run(arguments):
    import pyprof

    print(len(pyprof.load(arguments.file).kernels))
