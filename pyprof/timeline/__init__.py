# SPDX-License-Identifier: Apache-2.0
"""The timeline of a recording: tracks of events, drawn at any zoom without reading all of them.

A track (the ranges of a thread, a stream, the idle time of a device ...) is a set of lanes; the events of a lane do
not overlap. `tracks` reads them from the profile database, `levels` merges what is shorter than a pixel, `tiles` cuts
each level into pieces that a browser decodes, and `build` writes them. docs/timeline.md describes the bytes.
"""
