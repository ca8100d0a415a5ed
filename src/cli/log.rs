//! Logging: one line per event on standard error, as text or JSON. Texts from clusters, peers and libraries can't begin
//! another line, change the direction of text, or control a terminal. No credential may ever be logged: the types that
//! hold them don't print them, and what libraries log of bodies and headers is filtered out here.

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal, Write};

use clap::{Args, ValueEnum};
use rules::text::{visible, visible_json};
use tracing::{Level, Metadata, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter, Layer as _,
    filter::{FilterExt as _, FilterFn, filter_fn},
    fmt,
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use super::usage::{UsageError, wrong};

const DEFAULT_LEVEL: &str = "info";

/// The crates of this program whose lines are shown at every level: the prefixes of their targets.
const OURS: [&str; 8] =
    [env!("CARGO_CRATE_NAME"), "app", "change_stream", "cluster", "connect", "index", "scale", "service"];
/// This target quotes whole answers of API servers that it can't parse, including those to requests for Secrets.
const QUOTES_ANSWERS: &str = "kube_client::client";
/// This target warns at each handshake without verification of the server, and names neither cluster nor file, which
/// `connect` does once.
const UNVERIFIED: &str = "kube_client::client::tls::rustls_tls";
/// The prefix of targets of libraries that hold credentials, such as the headers for a trace collector, and may log them
/// at any level.
const HOLDS_CREDENTIALS: &str = "opentelemetry";

/// Options of the log.
#[derive(Args, Clone, Debug)]
pub struct LogArgs {
    /// Log format; auto: text on a terminal, JSON elsewhere
    #[arg(
        long,
        env = "CAPI_AUTOSCALER_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "auto",
        hide_possible_values = true,
        global = true,
        help_heading = "Logging",
        hide_short_help = true
    )]
    pub log_format: LogFormat,

    /// Log level (off, error, warn, info, debug, trace) or directives such as info,kube_client=debug
    #[arg(long, env = "CAPI_AUTOSCALER_LOG_LEVEL", value_name = "FILTER", default_value = DEFAULT_LEVEL, global = true, help_heading = "Logging")]
    pub log_level: String,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// Lines for people, coloured on a terminal.
    Text,
    /// A JSON object per line.
    Json,
}

impl LogFormat {
    fn is_text(self, terminal: bool) -> bool {
        match self {
            Self::Auto => terminal,
            Self::Text => true,
            Self::Json => false,
        }
    }
}

impl LogArgs {
    /// Returns the filter of the flag.
    pub(super) fn filter(&self) -> Result<EnvFilter, UsageError> {
        let level = if self.log_level.trim().is_empty() { DEFAULT_LEVEL } else { self.log_level.trim() };
        parse(level).map_err(|reason| wrong("--log-level", &self.log_level, reason))
    }

    /// Starts logging for the whole process. An existing logger stays.
    pub(super) fn init(&self) -> Result<(), UsageError> {
        let filter = self.filter()?;
        let terminal = io::stderr().is_terminal();
        let text = self.log_format.is_text(terminal);
        let form = if text { Form::Text } else { Form::Json };
        let lines = fmt::layer().with_writer(move || Lines { form, to: io::stderr() });
        let lines = if text { lines.with_ansi(terminal).boxed() } else { lines.json().flatten_event(true).boxed() };
        let started = tracing_subscriber::registry().with(lines.with_filter(filter.and(may_be_shown()))).try_init();
        // An error means that another logger was started before, such as by a test; this filter then has no effect.
        drop(started);
        Ok(())
    }
}

/// Parses a filter. A single word must be a level: as a target, it would silence all other targets, which is rarely
/// intended.
fn parse(text: &str) -> Result<EnvFilter, String> {
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let mut words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    // Within brackets, a comma separates fields.
    if !text.contains('[')
        && let Some(word) = words.find(|word| !word.contains('=') && !is_level(word))
    {
        return Err(format!(
            "{word:?} is no level: use off, error, warn, info, debug or trace, or TARGET=LEVEL for one part of the program"
        ));
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())
}

/// Libraries' TRACE lines are hidden: they show what is sent and received, including credentials.
fn may_be_shown() -> FilterFn {
    filter_fn(shows)
}

fn shows(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let is_in = |name: &str| target.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let ours = OURS.into_iter().any(is_in);
    // Its other lines have fields.
    let is_unverified = target == UNVERIFIED && metadata.fields().len() == 1;
    let is_denied = target == QUOTES_ANSWERS || is_unverified || target.starts_with(HOLDS_CREDENTIALS);
    ours || (*metadata.level() != Level::TRACE && !is_denied)
}

/// The form of events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    Text,
    Json,
}

/// Writes each event as one line to a destination. An event arrives in one call, with a newline at its end.
#[derive(Debug)]
struct Lines<W> {
    form: Form,
    to: W,
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = match self.form {
            Form::Text => one_line(&text),
            Form::Json => visible_json(text.into_owned()),
        };
        self.to.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Escapes everything in an event that controls a terminal, except the newline at its end and the colours of the log
/// itself.
fn one_line(event: &str) -> String {
    let body = event.strip_suffix('\n');
    let mut pieces = body.unwrap_or(event).split('\u{1b}');
    let mut line = visible(pieces.next().unwrap_or_default()).into_owned();
    for piece in pieces {
        let (colour, rest) = piece.split_at(length_of_colour(piece).unwrap_or_default());
        line.push_str(if colour.is_empty() { "\\u{1b}" } else { "\u{1b}" });
        line.push_str(colour);
        line.push_str(&visible(rest));
    }
    if body.is_some() {
        line.push('\n');
    }
    line
}

/// Returns the length of the rest of an escape sequence that sets a colour, such as `[32m`; `None` for any other
/// text.
fn length_of_colour(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix('[')?;
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    parameters.get(end..)?.starts_with('m').then_some(end + 2)
}
