//! The report for people: a block per object, its values in columns, each with its source and the values it overrode.
//! Texts from clusters and manifests must be escaped.

use std::fmt::Write as _;

use anstyle::Style;

use crate::cli::printing::{BAD, DIM, GOOD, ODD, Paint};
use page::state::explain::{
    GroupReport, Report,
    rows::{Row, plain, rows, short},
};
use page::state::{LeftOutObject, Problem};
use rules::FromZero;

/// The minimum widths of the first columns.
const NAME_WIDTH: usize = 12;
const VALUE_WIDTH: usize = 12;
/// The maximum widths; a longer name or value shifts only its own line.
const WIDEST_NAME: usize = 20;
const WIDEST_VALUE: usize = 18;

/// Returns the report as text, ending with a newline.
pub(super) fn text(report: &Report, coloured: bool) -> String {
    let paint = Paint { coloured };
    let mut blocks: Vec<_> = report.groups.iter().map(|group| paint.group(group)).collect();
    blocks.extend(report.left_out.iter().map(|object| paint.left_out(object)));
    if blocks.is_empty() {
        blocks.push("no node groups: --all shows what is excluded on purpose\n".to_owned());
    }
    blocks.join("\n")
}

impl Paint {
    fn group(&self, group: &GroupReport) -> String {
        let bold = Style::new().bold();
        let zero = match &group.not_from_zero {
            None if group.from_zero == Some(FromZero::Remembered.as_str()) => {
                format!("scales from zero: {}, remembered", self.with(GOOD, "yes"))
            }
            None => format!("scales from zero: {}", self.with(GOOD, "yes")),
            Some(_) => format!("scales from zero: {}", self.with(ODD, "no")),
        };
        let mut text = format!(
            "{}   {} of {}..{}   {zero}",
            self.with(bold, &plain(&group.id)),
            group.size,
            group.min_size,
            group.max_size
        );
        text.push_str(if group.rolling_out { "   rolling out\n" } else { "\n" });
        self.lines(&mut text, &rows(group), &group.problems, group.not_from_zero.iter().chain(&group.notes));
        text
    }

    fn left_out(&self, object: &LeftOutObject) -> String {
        let bold = Style::new().bold();
        let style = if object.invalid { BAD } else { ODD };
        let mut text = format!(
            "{}   {}: {}\n",
            self.with(bold, &plain(&object.id)),
            self.with(style, "excluded"),
            short(&object.message)
        );
        self.lines(&mut text, &[], &object.problems, object.notes.iter());
        text
    }

    /// Writes the lines of a block below its heading: values, problems and notes.
    fn lines<'a>(
        &self,
        text: &mut String,
        rows: &[Row],
        problems: &[Problem],
        notes: impl Iterator<Item = &'a String>,
    ) {
        let of_values = rows.iter().filter(|row| !row.from.is_empty()).map(|row| row.value.as_str());
        let values = column(VALUE_WIDTH, WIDEST_VALUE, of_values);
        let problems: Vec<_> =
            problems.iter().map(|it| (format!("! {}", it.kind.as_str()), short(&it.message))).collect();
        let of_names = rows.iter().map(|row| &row.name).chain(problems.iter().map(|(name, _)| name));
        let names = column(NAME_WIDTH, WIDEST_NAME, of_names.map(String::as_str));
        let mut before = "";
        for row in rows {
            let name = if row.name == before { "" } else { &row.name };
            before = &row.name;
            let behind = if row.from.is_empty() { String::new() } else { gap(values, &row.value) };
            let _ = writeln!(text, "  {name}{}{}{behind}{}", gap(names, name), row.value, self.with(DIM, &row.from));
        }
        for (name, message) in &problems {
            let _ = writeln!(text, "  {}{}{message}", self.with(BAD.bold(), name), gap(names, name));
        }
        for note in notes {
            let _ = writeln!(text, "  note{}{}", gap(names, "note"), short(note));
        }
    }
}

/// Returns the width of a column: its longest text plus two spaces, without texts that are too long.
fn column<'a>(least: usize, widest: usize, texts: impl Iterator<Item = &'a str>) -> usize {
    let widths = texts.map(|text| text.chars().count() + 2).filter(|width| *width <= widest);
    widths.max().unwrap_or_default().max(least)
}

/// Returns the spaces that fill a column after a text.
fn gap(width: usize, text: &str) -> String {
    " ".repeat(width.saturating_sub(text.chars().count()).max(2))
}
