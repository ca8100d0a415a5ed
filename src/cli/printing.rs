//! Standard output as the subcommands share it: the choice of colours, and JSON and YAML without control characters,
//! which a terminal would obey.

use std::io::{self, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use serde::Serialize;
use thiserror::Error;

use rules::text::{is_left_by_json, visible_json};

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

/// The reason why an output can't be printed.
#[derive(Debug, Error)]
pub enum PrintError {
    /// Standard output can't be written.
    #[error("can't print: {0}")]
    Io(#[from] io::Error),
    /// The value can't be serialized.
    #[error("can't write it: {0}")]
    Form(String),
}

/// Prints; it is no error if the reader has closed the pipe.
pub(super) fn print(to: &mut impl Write, text: &str) -> Result<(), PrintError> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// Returns a value as JSON, ending with a newline.
pub(super) fn json(value: &impl Serialize) -> Result<String, PrintError> {
    let json = serde_json::to_string_pretty(value).map_err(|error| PrintError::Form(error.to_string()))?;
    Ok(visible_json(json) + "\n")
}

/// Returns a value as YAML, ending with a newline.
pub(super) fn yaml(value: &impl Serialize) -> Result<String, PrintError> {
    let yaml = serde_yaml::to_string(value).map_err(|error| PrintError::Form(error.to_string()))?;
    // JSON is valid YAML, and can escape every character.
    if yaml.contains(is_left_by_json) { json(value) } else { Ok(yaml) }
}
