//! Log filters: the one that an operator gives, and what no filter can show.

use tracing::{Level, Metadata, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter,
    filter::{FilterFn, filter_fn},
};

/// The prefix of all targets of this program.
const OURS: &str = env!("CARGO_CRATE_NAME");
/// It quotes whole answers of API servers when it can't read them, those to a request for a Secret too.
const QUOTES_ANSWERS: &str = "kube_client::client";

/// Libraries that hold credentials, such as the headers of a collector of traces, and may say them at any level: by the
/// beginning of their targets.
const HOLD_CREDENTIALS: [&str; 1] = ["opentelemetry"];

/// Reads a filter. A word alone has to be a level: as a target it would be one that hardly anybody means, and silence all
/// others.
pub(super) fn parse(text: &str) -> Result<EnvFilter, String> {
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let mut words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    // Within brackets a comma separates fields.
    if !text.contains('[')
        && let Some(word) = words.find(|word| !word.contains('=') && !is_level(word))
    {
        return Err(format!(
            "{word:?} is no level: use off, error, warn, info, debug or trace, or TARGET=LEVEL for one part of the program"
        ));
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())
}

/// Libraries' traces show what they send and get, and with it credentials.
pub(super) fn may_be_shown() -> FilterFn {
    filter_fn(shows)
}

fn shows(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let ours = target.strip_prefix(OURS).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let is_denied = target == QUOTES_ANSWERS || HOLD_CREDENTIALS.iter().any(|denied| target.starts_with(denied));
    ours || (*metadata.level() != Level::TRACE && !is_denied)
}
