//! Log filters: the operator's, and the one that hides lines which must never be shown.

use tracing::{Level, Metadata, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter,
    filter::{FilterFn, filter_fn},
};

/// The crates of this program whose lines are shown at every level: the prefixes of their targets.
pub(super) const OURS: [&str; 8] =
    [env!("CARGO_CRATE_NAME"), "app", "change_stream", "cluster", "connect", "index", "scale", "service"];
/// This target quotes whole answers of API servers that it can't parse, including those to requests for Secrets.
const QUOTES_ANSWERS: &str = "kube_client::client";

/// This target warns at each handshake without verification of the server, and names neither cluster nor file, which
/// `connect` does once.
const UNVERIFIED: &str = "kube_client::client::tls::rustls_tls";

/// The prefixes of targets of libraries that hold credentials, such as the headers for a trace collector, and may log
/// them at any level.
const HOLD_CREDENTIALS: [&str; 1] = ["opentelemetry"];

/// Parses a filter. A single word must be a level: as a target, it would silence all other targets, which is rarely
/// intended.
pub(super) fn parse(text: &str) -> Result<EnvFilter, String> {
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
pub(super) fn may_be_shown() -> FilterFn {
    filter_fn(shows)
}

fn shows(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let is_in = |name: &str| target.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let ours = OURS.into_iter().any(is_in);
    // Its other lines have fields.
    let is_unverified = target == UNVERIFIED && metadata.fields().len() == 1;
    let is_denied =
        target == QUOTES_ANSWERS || is_unverified || HOLD_CREDENTIALS.iter().any(|denied| target.starts_with(denied));
    ours || (*metadata.level() != Level::TRACE && !is_denied)
}
