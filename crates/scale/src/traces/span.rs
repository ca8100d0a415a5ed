//! A span in progress, or nothing if traces are off. Code that holds a span needn't know the difference.

use opentelemetry::{
    Context, KeyValue, Value,
    trace::{SpanContext, Status, TraceContextExt as _},
};
use opentelemetry_sdk::trace;

/// A span in progress. If it is dropped before its end, it is marked as cancelled by the caller.
#[derive(Debug, Default)]
pub struct Span(Option<Context>);

/// Returns the context of the current task, to continue its trace elsewhere.
#[must_use]
pub fn current() -> Context {
    Context::current()
}

/// Adds attributes to the span of the current task, as [`Span::set`] does.
pub fn set(attributes: &[(&'static str, i64)]) {
    Context::map_current(|context| {
        for &(key, value) in attributes {
            context.span().set_attribute(KeyValue::new(key, value));
        }
    });
}

/// Links the current task's span to the trace of another caller that the task serves, as [`super::Traces::work`] does.
pub fn asked_by(other: &Context) {
    let other = other.span().span_context().clone();
    if other.is_valid() {
        Context::map_current(|context| context.span().add_link(other, Vec::new()));
    }
}

impl Span {
    pub(super) fn begun(span: trace::Span) -> Self {
        Self(Some(Context::new().with_span(span)))
    }

    /// Returns the context under which the work of this span runs.
    #[must_use]
    pub fn context(&self) -> Context {
        self.0.clone().unwrap_or_default()
    }

    /// Adds an attribute.
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        if let Some(context) = &self.0 {
            context.span().set_attribute(KeyValue::new(key, value));
        }
    }

    pub(super) fn link(&self, other: &SpanContext) {
        if let Some(context) = self.0.as_ref().filter(|_| other.is_valid()) {
            context.span().add_link(other.clone(), Vec::new());
        }
    }

    /// Returns the id of its trace; `None` if the span isn't sent.
    #[must_use]
    pub fn trace_id(&self) -> Option<String> {
        let span = self.0.as_ref()?.span().span_context().clone();
        span.is_sampled().then(|| span.trace_id().to_string())
    }

    /// Ends the span with this code and, if it failed, the error.
    pub fn end(mut self, code: &'static str, error: Option<String>) {
        if let Some(context) = self.0.take() {
            let span = context.span();
            span.set_attribute(KeyValue::new("code", code));
            if let Some(error) = error {
                span.set_status(Status::error(error));
            }
            span.end();
        }
    }

    /// Ends the span; its outcome is reported elsewhere.
    pub fn close(mut self) {
        if let Some(context) = self.0.take() {
            context.span().end();
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(context) = self.0.take() {
            let span = context.span();
            span.set_attribute(KeyValue::new("code", "CANCELLED"));
            span.set_status(Status::error("the caller has left"));
            span.end();
        }
    }
}
