//! The layout of tables for terminals. Texts from clusters must be escaped.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use rules::text::visible;

/// The width of the space between two columns.
const GAP: u16 = 3;

/// Lays out columns without borders, like kubectl; numbers are right-aligned.
pub(super) fn lay_out(headings: &[(&str, bool)], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.iter().map(|(heading, _)| *heading));
    table.add_rows(rows);
    for (column, (_, is_number)) in table.column_iter_mut().zip(headings) {
        column.set_padding((0, GAP));
        if *is_number {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

pub(super) fn shown(text: &str) -> String {
    visible(text).into_owned()
}
