#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws a picture from its description: picture.py FILE.pic >FILE.svg

Lines of a description, units are pixels, x and y the upper left corner:

    size WIDTH HEIGHT
    box NAME X Y WIDTH HEIGHT FILL TEXT[ | SMALL TEXT]...
    arrow FROM TO [TEXT]      from the lower edge of one box to the upper edge
    dashed FROM TO [TEXT]     of the other; the text stands beside its middle

Where boxes overlap in x the arrow stands upright in the middle of what they
share. Text of a box runs from its top if the box contains others, else it is
centred. The same description always gives the same bytes: tests/check/docs.sh
compares them.
"""
import sys
from html import escape

FONT = 'font-family="sans-serif"'
FILLS = {'user': '#eef2f7', 'host': '#dbe7f6', 'weft': '#fbe7c6',
         'part': '#fff6e5', 'wire': '#dff0e0'}


def text(x, y, words, size, anchor='middle', colour='#1b1f24', weight=''):
    return (f'<text x="{x:g}" y="{y:g}" {FONT} font-size="{size}" '
            f'text-anchor="{anchor}" fill="{colour}"{weight}>{escape(words)}</text>')


def draw_box(box, holds_others):
    x, y, width, height, fill, lines = box
    out = [f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" '
           f'fill="{FILLS[fill]}" stroke="#57606a"/>']
    spread = 17 * (len(lines) - 1)
    base = y + 20 if holds_others else y + (height - spread) / 2 + 5
    for i, line in enumerate(lines):
        out.append(text(x + width / 2, base + 17 * i, line, 12 if i else 14,
                        weight='' if i else ' font-weight="bold"'))
    return out


def draw_arrow(a, b, words, dashed):
    left, right = max(a[0], b[0]), min(a[0] + a[2], b[0] + b[2])
    if left < right:
        x1 = x2 = (left + right) / 2
    else:
        x1, x2 = a[0] + a[2] / 2, b[0] + b[2] / 2
    y1, y2 = a[1] + a[3], b[1]
    dash = ' stroke-dasharray="6 4"' if dashed else ''
    out = [f'<line x1="{x1:g}" y1="{y1}" x2="{x2:g}" y2="{y2}" stroke="#24292f" '
           f'stroke-width="1.5"{dash} marker-end="url(#head)"/>']
    for i, line in enumerate(words):
        out.append(text((x1 + x2) / 2 + 8, (y1 + y2) / 2 + 4 + 15 * i, line, 12,
                        'start', '#57606a'))
    return out


def split(words):
    return [part.strip() for part in ' '.join(words).split('|')] if words else []


def inside(a, b):
    return (a is not b and b[0] <= a[0] and a[0] + a[2] <= b[0] + b[2] and
            b[1] <= a[1] and a[1] + a[3] <= b[1] + b[3])


def draw(description):
    boxes, arrows, size = {}, [], None
    for line in description.splitlines():
        word, *rest = line.split('#')[0].split() or ['']
        if word == 'size':
            size = [int(n) for n in rest]
        elif word == 'box':
            name, x, y, width, height, fill, *words = rest
            boxes[name] = (int(x), int(y), int(width), int(height), fill, split(words))
        elif word in ('arrow', 'dashed'):
            start, end, *words = rest
            arrows.append((start, end, split(words), word == 'dashed'))
        elif word:
            raise SystemExit(f'picture.py: what is "{line}"?')
    width, height = size
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'width="{width}" height="{height}">',
           '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" '
           'markerWidth="8" markerHeight="8" orient="auto">'
           '<path d="M0,0 L8,4 L0,8 z" fill="#24292f"/></marker></defs>',
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for box in boxes.values():
        out += draw_box(box, any(inside(other, box) for other in boxes.values()))
    for start, end, words, dashed in arrows:
        out += draw_arrow(boxes[start], boxes[end], words, dashed)
    return '\n'.join(out + ['</svg>'])


with open(sys.argv[1], encoding='utf-8') as file:
    print(draw(file.read()))
