//! Standard output as the subcommands share it: the choice of colours, and JSON and YAML without control characters,
//! which a terminal would obey.

use std::io::{self, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use anyhow::Context as _;
use clap::ValueEnum;
use rules::text::{is_left_by_json, visible_json};
use serde::Serialize;

pub(super) const DIM: Style = AnsiColor::BrightBlack.on_default();
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
pub(super) const BAD: Style = AnsiColor::Red.on_default();
pub(super) const ODD: Style = AnsiColor::Yellow.on_default();

/// When text is coloured.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// Returns true if text on standard output is coloured.
    pub(super) fn is_on(self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => AutoStream::choice(&io::stdout()) != ColorChoice::Never,
        }
    }
}

/// Sets styles, or none where text isn't coloured.
pub(super) struct Paint {
    pub(super) coloured: bool,
}

impl Paint {
    pub(super) fn with(&self, style: Style, text: &str) -> String {
        if self.coloured && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// Prints; it is no error if the reader has closed the pipe.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("can't print"),
    }
}

/// The maximum number of names in one line.
pub(super) const MOST_NAMED: usize = 10;

/// Returns the first names, and the number of the others.
pub(super) fn listed(names: &[String]) -> String {
    let first = names.iter().take(MOST_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMED) {
        0 => first,
        others => format!("{first} and {others} more"),
    }
}

/// Returns a value as JSON, ending with a newline.
pub(super) fn json(value: &impl Serialize) -> anyhow::Result<String> {
    let json = serde_json::to_string_pretty(value).context("can't write it")?;
    Ok(visible_json(json) + "\n")
}

/// Returns a value as YAML, ending with a newline.
pub(super) fn yaml(value: &impl Serialize) -> anyhow::Result<String> {
    let yaml = serde_yaml::to_string(value).context("can't write it")?;
    // JSON is valid YAML, and can escape every character.
    if yaml.contains(is_left_by_json) { json(value) } else { Ok(yaml) }
}
