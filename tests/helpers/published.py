"""Real data in the form in which it was published, where it is at hand: pages and notebooks begin with these files."""

import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from tests.helpers.places import data


def write_hillstrom(folder):
    """hillstrom.csv: the data at hand has codes for text."""
    table = pq.read_table(data("hillstrom.parquet"))
    words = {name.decode(): json.loads(text) for name, text in table.schema.metadata.items() if text.startswith(b"[")}
    texts = {"zip_code": "zip_code", "channel": "channel", "segment": "actions"}
    table = table.rename_columns(["segment" if name == "action" else name for name in table.column_names])
    for name, key in texts.items():
        codes = pa.DictionaryArray.from_arrays(table[name].combine_chunks(), words[key])
        table = table.set_column(table.schema.get_field_index(name), name, codes.dictionary_decode())
    csv.write_csv(table.drop(["propensity"]), folder / "hillstrom.csv")


def write_open_bandit(folder):
    """The folders obd/random/all and obd/bts/all, without features of users and their affinities to items."""
    table = pq.read_table(data("obd_all.parquet"))
    for code, name in enumerate(("random", "bts")):
        rows = table.filter(pc.field("policy") == code)
        place = folder / "obd" / name / "all"
        place.mkdir(parents=True)
        columns = {"": range(rows.num_rows), **{name: rows[name] for name in ("item_id", "position", "click")}}
        columns |= {"propensity_score": rows["propensity"], "user_feature_0": ["a"] * rows.num_rows}
        csv.write_csv(pa.table(columns), place / "all.csv", csv.WriteOptions(quoting_style="none"))
