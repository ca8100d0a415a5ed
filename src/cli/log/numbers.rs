//! Writes integers of 128 bits, such as `Duration::as_millis`, as numbers: tracing-subscriber's JSON has them as
//! strings.

use std::fmt;

use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// A form of events as flat JSON objects, with all integers as numbers.
pub(super) struct Numbers<F>(pub(super) F);

impl<S, N, F> FormatEvent<S, N> for Numbers<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut wide = Wide(Vec::new());
        event.record(&mut wide);
        if wide.0.is_empty() {
            return self.0.format_event(context, writer, event);
        }
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        for (name, value) in wide.0 {
            // Quotes within a text are escaped, so this is the field itself.
            line = line.replacen(&format!("\"{name}\":\"{value}\""), &format!("\"{name}\":{value}"), 1);
        }
        writer.write_str(&line)
    }
}

/// The fields of 128 bits, as text.
struct Wide(Vec<(&'static str, String)>);

impl Visit for Wide {
    fn record_u128(&mut self, field: &Field, value: u128) {
        self.0.push((field.name(), value.to_string()));
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.0.push((field.name(), value.to_string()));
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}
