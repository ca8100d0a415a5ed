//! The parts that all pages share: head, header, and the rendering of texts, conditions and links.

use std::fmt::Write as _;

use maud::{DOCTYPE, Markup, PreEscaped, Render, html};

use super::{
    overview::{certificate, sync_check},
    parts::{Condition, Now, Severity, span},
    view::View,
};
use crate::state::{CheckState, Head, HistoryOutcome, TlsStanding};
use rules::text::visible;
use service::listen::STYLE_PATH;

/// The interval in seconds at which the link in the header refreshes a page.
const REFRESH: u32 = 10;

/// A text from a cluster. Rendering makes characters that would hide or reverse other text visible, and escapes the
/// rest.
pub(super) struct Foreign<'a>(pub(super) &'a str);

impl Render for Foreign<'_> {
    fn render_to(&self, buffer: &mut String) {
        visible(self.0).as_ref().render_to(buffer);
    }
}

/// A page: its title, its path, and the data of its header.
pub(super) struct Page<'a> {
    pub(super) title: &'a str,
    pub(super) path: &'a str,
    pub(super) view: &'a View,
    pub(super) head: &'a Head,
    /// The path of the same as JSON.
    pub(super) debug: &'a str,
}

impl Page<'_> {
    pub(super) fn around(&self, content: &Markup) -> Markup {
        let Self { title, path, view, head, debug } = self;
        let now = Now(head.taken_at);
        let up = u64::try_from(now.seconds_since(head.program.started_at)).unwrap_or_default();
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    @if let Some(seconds) = view.refresh { meta http-equiv="refresh" content=(seconds); }
                    title { (Foreign(title)) }
                    link rel="icon" href="data:,";
                    link rel="stylesheet" href=(STYLE_PATH);
                }
                body {
                    header {
                        p class="name" { a href={ "/" (view.top().query()) } { "capi-autoscaler-provider" } }
                        p class="about" {
                            @if let Some(cluster) = &head.cluster { "Cluster " b { (Foreign(cluster)) } " · " }
                            @if let Some(pod) = &head.program.pod { "Pod " b { (Foreign(pod)) } " · " }
                            "read " time datetime=(head.taken_at) { (head.taken_at.strftime("%F %T UTC")) }
                            " · version " (head.program.version) ", up " (span(up)) " · "
                            @if let Some(seconds) = view.refresh {
                                "refreshed every " (span(seconds.into())) ", "
                                a href={ (path) (view.with_refresh(None).query()) } { "stop" }
                            } @else {
                                a href={ (path) (view.with_refresh(Some(REFRESH)).query()) } { "refresh every " (REFRESH) " s" }
                            }
                        }
                    }
                    main { (content) }
                    footer {
                        a href=(debug) { (debug) } " · " a href="/metrics" { "/metrics" }
                        " · runbook: docs/how-to/runbook.md"
                    }
                }
            }
        }
    }
}

/// Renders a condition of a row as a sign and a word, so that no colour is needed.
pub(super) fn badge(condition: Condition) -> Markup {
    labelled(condition.severity(), condition.title())
}

/// Renders a word with a sign for its severity.
pub(super) fn labelled(severity: Severity, text: &str) -> Markup {
    let (class, sign) = match severity {
        Severity::Bad => ("bad", "✕"),
        Severity::Odd => ("odd", "!"),
        Severity::Busy => ("busy", "↻"),
        Severity::Good => ("good", "✓"),
        Severity::Quiet => ("quiet", "–"),
    };
    html! { span class={ "badge " (class) } { span aria-hidden="true" { (sign) " " } (text) } }
}

/// Renders the command that describes an object, which one click selects; `None` if a shell would read its name as more
/// than a name.
pub(super) fn describe(resource: &str, namespace: Option<&str>, name: &str) -> Option<Markup> {
    let is_plain = |text: &str| {
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':');
        text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.bytes().all(is_safe)
    };
    let is_safe = is_plain(name) && namespace.is_none_or(is_plain);
    is_safe.then(|| {
        html! {
            code class="copy" {
                "kubectl describe " (resource) " " @if let Some(namespace) = namespace { "-n " (namespace) " " } (name)
            }
        }
    })
}

pub(super) fn outcome(outcome: HistoryOutcome) -> Markup {
    let severity = match outcome {
        HistoryOutcome::Done => Severity::Good,
        HistoryOutcome::Refused | HistoryOutcome::Failed => Severity::Bad,
    };
    labelled(severity, outcome.as_str())
}

pub(super) fn path_of(id: &str) -> String {
    let mut path = "/groups".to_owned();
    for part in id.split('/') {
        path.push('/');
        for byte in part.bytes() {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_') {
                path.push(char::from(byte));
            } else {
                // Writing to a String can't fail.
                let _ = write!(path, "%{byte:02X}");
            }
        }
    }
    path
}

/// Renders an id that may break after its slashes, for narrow screens.
pub(super) fn id(id: &str) -> Markup {
    let parts = id.split('/').map(|part| Foreign(part).render().into_string());
    PreEscaped(parts.collect::<Vec<_>>().join("/<wbr>"))
}

/// Renders a table whose rows are folded for a narrow screen.
pub(super) fn table(class: &str, headings: &[&str], rows: &Markup) -> Markup {
    html! {
        table role="table" class=(class) {
            thead role="rowgroup" { tr role="row" {
                @for heading in headings { th role="columnheader" scope="col" { (heading) } }
            } }
            tbody role="rowgroup" { (rows) }
        }
    }
}

/// Renders the number of rows that were found, and which page of them is shown.
pub(super) fn found(rows: usize, page: usize, pages: usize) -> Markup {
    html! {
        p class="found" {
            (rows) @if rows == 1 { " row" } @else { " rows" }
            @if pages > 1 { ", page " (page) " of " (pages) }
        }
    }
}

/// Renders the cards that both first pages begin with: whether all is in sync, and the certificate.
pub(super) fn standing(head: &Head, tls: Option<&TlsStanding>) -> Markup {
    let waiting: Vec<_> = head.checks.iter().filter(|check| check.state != CheckState::Ready).collect();
    html! {
        div class="card" {
            h2 { "In sync" }
            p { @if head.ready { (labelled(Severity::Good, "yes")) } @else { (labelled(Severity::Bad, "no: Refresh is refused")) } }
            @if !waiting.is_empty() { ul { @for check in waiting { li { (sync_check(check)) } } } }
        }
        @if let Some(tls) = tls {
            div class="card" { h2 { "Certificate" } (certificate(tls, Now(head.taken_at))) }
        }
    }
}

/// Renders a cell whose heading is shown beside it when the table is folded for a narrow screen.
pub(super) fn cell(heading: &str, class: &str, content: &impl Render) -> Markup {
    html! { td role="cell" class=(class) data-heading=(heading) { (content) } }
}
