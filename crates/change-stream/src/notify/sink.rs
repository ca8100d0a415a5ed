//! The content of messages: JSON for programs, text for people in a chat.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};

use super::queue::{Batch, Limits};
use crate::changes::{Action, Change, Difference, SCHEMA_VERSION};
use rules::text::{shortened, visible};

/// The longest JSON of one change; a longer change is sent without its patch.
const LONGEST_CHANGE: usize = 256 << 10;
/// The longest message. Slack truncates beyond 40,000 characters, and recommends at most 4,000.
pub(super) const SLACK_LIMIT: usize = 3800;
/// The longest text of one change in a message.
const SLACK_CHANGE: usize = 1500;
const SLACK_LINES: usize = 12;
const SLACK_VALUE: usize = 120;

/// The form of messages.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum SinkKind {
    /// JSON: `docs/reference/watch.md` has its form.
    Webhook,
    /// A message for Slack's incoming webhooks, and for services that are compatible with them.
    Slack,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    schema_version: u32,
    /// The number of changes lost before these: dropped from a full queue, or given up.
    dropped: u64,
    changes: Vec<&'a RawValue>,
}

impl SinkKind {
    pub(super) fn render(self, change: &Change) -> String {
        match self {
            Self::Webhook => change.to_json_within(LONGEST_CHANGE),
            Self::Slack => slack_text(change),
        }
    }

    /// Returns the limits of one message. Changes that don't fit into a chat message are counted in it.
    pub(super) fn limits(self) -> Limits {
        match self {
            Self::Webhook => Limits { changes: 100, bytes: 1 << 20 },
            Self::Slack => Limits { changes: usize::MAX, bytes: usize::MAX },
        }
    }

    pub(super) fn body(self, batch: &Batch) -> Vec<u8> {
        let body = match self {
            Self::Webhook => {
                let changes = batch.changes.iter().filter_map(|change| serde_json::from_str(change).ok()).collect();
                serde_json::to_vec(&Envelope { schema_version: SCHEMA_VERSION, dropped: batch.lost, changes })
            }
            Self::Slack => serde_json::to_vec(&json!({ "text": slack_message(batch) })),
        };
        // This can't fail, since all values are strings and numbers.
        body.unwrap_or_default()
    }
}

/// Returns as many changes as fit, and the number of the others.
fn slack_message(batch: &Batch) -> String {
    let mut message = String::new();
    if batch.lost > 0 {
        let _ = writeln!(message, ":warning: {} changes before these were not sent", batch.lost);
    }
    let mut length = message.chars().count();
    let mut left = batch.changes.len();
    for change in &batch.changes {
        length += change.chars().count() + 1;
        // The last line needs some space.
        if length > SLACK_LIMIT - 60 && left < batch.changes.len() {
            break;
        }
        message.push_str(change);
        message.push('\n');
        left -= 1;
    }
    if left > 0 {
        let _ = write!(message, "_… and {left} more changes_");
    }
    message.trim_end().to_owned()
}

fn slack_text(change: &Change) -> String {
    let what = match change.action {
        Action::Added { .. } => "added",
        Action::Modified => "changed",
        Action::Deleted { .. } => "deleted",
    };
    let mut text = format!("*{}* {what}", slack_name(&shortened(&change.object(), 400)));
    let mut by: Vec<&str> = Vec::new();
    for manager in change.changed_by.iter().map(|by| by.manager.as_str()) {
        // A manager that wrote the object and its status is named once.
        if !by.contains(&manager) {
            by.push(manager);
        }
    }
    if !by.is_empty() {
        let _ = write!(text, " by {}", slack_name(&shortened(&by.join(", "), 200)));
    }
    if let Some(problem) = &change.problem {
        let _ = write!(text, ": {}", slack_name(&shortened(problem, 200)));
    }
    // A new object is described well enough by its name.
    if change.action == Action::Modified {
        slack_lines(change, &mut text);
    }
    text
}

fn slack_lines(change: &Change, text: &mut String) {
    let lines = change.lines();
    let mut shown = 0;
    text.push_str("\n```");
    for line in lines.iter().take(SLACK_LINES) {
        let short = |value: &str| slack(&shortened(value, SLACK_VALUE));
        let path = short(&line.path);
        let rendered = match &line.difference {
            Difference::Added(new) => format!("\n+ {path}: {}", short(new)),
            Difference::Removed(old) => format!("\n- {path}: {}", short(old)),
            Difference::Changed(old, new) => format!("\n  {path}: {} → {}", short(old), short(new)),
            Difference::Redacted => format!("\n  {path}: changed"),
        };
        if text.chars().count() + rendered.chars().count() > SLACK_CHANGE && shown > 0 {
            break;
        }
        text.push_str(&rendered);
        shown += 1;
    }
    if shown < lines.len() {
        let _ = write!(text, "\n  … and {} more lines", lines.len() - shown);
    }
    text.push_str("\n```");
}

/// Escapes a text outside of a code block, where Slack makes links of bare URLs, and others treat a bare `@channel`
/// as a mention.
fn slack_name(text: &str) -> String {
    slack(text).replace('@', "＠").replace("://", ":∕∕")
}

/// Escapes a text so that Slack shows it literally: no mention, no link, no end of a code block.
fn slack(text: &str) -> String {
    visible(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('`', "'").replace('*', "∗")
}
