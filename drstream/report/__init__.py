"""Results for people: a page to send, pictures, and what notebooks show.

answer        the answer in one sentence, from differences and findings
pictures      what pictures show, as plain rows; made once, drawn in two ways and shown as a table
svg, plots    the two ways: SVG as text, and matplotlib
evaluations, replays, audits, forecasts
              what is told about each kind of result
kinds         which of them tells about a result
page          the page, with its style; notebook: the same in a cell
html          the only file that makes HTML of text
"""
