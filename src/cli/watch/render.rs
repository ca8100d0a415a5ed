//! A change as text for a terminal. Control characters in texts from a cluster must be escaped.

use std::fmt::Write as _;

use anstyle::AnsiColor;
use change_stream::changes::{Action, Change, ChangedBy, Difference};

use crate::cli::printing::Paint;
use rules::text::{shortened, visible};

/// The maximum number of lines of a change, and of a new object.
const LINES: usize = 100;
const LINES_OF_NEW: usize = 20;
/// The maximum number of characters of a value.
const VALUE: usize = 300;
/// The same, and the maximum number of differences, where a change is one line.
const BRIEF_VALUE: usize = 40;
const NAMED: usize = 3;

/// Returns one line for the change, and one for each difference.
pub(super) fn text(change: &Change, coloured: bool) -> String {
    let paint = Paint { coloured };
    let shown = match change.action {
        Action::Added { initial: true } | Action::Deleted { .. } => 0,
        Action::Added { initial: false } => LINES_OF_NEW,
        Action::Modified => LINES,
    };
    let mut text = paint.heading(change) + "\n";
    let lines = change.lines();
    for line in lines.iter().take(shown) {
        let _ = writeln!(text, "{}", paint.line(&line.path, &line.difference));
    }
    if shown > 0 && lines.len() > shown {
        let _ = writeln!(text, "    … and {} more lines: -o json shows all", lines.len() - shown);
    }
    text
}

/// Returns one line for the change, with the first differences of an object that was modified.
pub(super) fn line(change: &Change, coloured: bool) -> String {
    let paint = Paint { coloured };
    let mut text = paint.heading(change);
    if change.action == Action::Modified {
        let lines = change.lines();
        let named = lines.iter().take(NAMED).map(|line| paint.brief(&line.path, &line.difference));
        let more = lines.len().saturating_sub(NAMED);
        let more = (more > 0).then(|| format!("{more} more"));
        let differences: Vec<_> = named.chain(more).collect();
        if !differences.is_empty() {
            let _ = write!(text, ": {}", differences.join(", "));
        }
    }
    text.push('\n');
    text
}

fn manager(by: &ChangedBy) -> String {
    let name = visible(&by.manager);
    match &by.subresource {
        Some(subresource) => format!("{name} ({})", visible(subresource)),
        None => name.into_owned(),
    }
}

impl Paint {
    fn heading(&self, change: &Change) -> String {
        let (sign, colour) = match change.action {
            Action::Added { initial: true } => ('=', AnsiColor::BrightBlack),
            Action::Added { initial: false } => ('+', AnsiColor::Green),
            Action::Modified => ('~', AnsiColor::Yellow),
            Action::Deleted { .. } => ('-', AnsiColor::Red),
        };
        let identity = &change.identity;
        let dim = AnsiColor::BrightBlack.on_default();
        let mut text = format!(
            "{} {} {}",
            self.with(dim, &format!("{:.0}", identity.time)),
            self.with(colour.on_default().bold(), &format!("{sign} {}", visible(&change.object()))),
            self.with(dim, &format!("rv={}", visible(&identity.resource_version))),
        );
        if change.action == (Action::Deleted { found_by_relist: true }) {
            text.push_str(" (missing from a list)");
        }
        if !change.changed_by.is_empty() && change.action != (Action::Added { initial: true }) {
            let by: Vec<_> = change.changed_by.iter().map(manager).collect();
            let _ = write!(text, " by {}", self.with(AnsiColor::Cyan.on_default(), &by.join(", ")));
        }
        if let Some(problem) = &change.problem {
            let _ = write!(text, ": {}", visible(problem));
        }
        text
    }

    fn brief(&self, path: &str, difference: &Difference) -> String {
        let (red, green) = (AnsiColor::Red.on_default(), AnsiColor::Green.on_default());
        let value = |text: &str| visible(&shortened(text, BRIEF_VALUE)).into_owned();
        let path = visible(path);
        match difference {
            Difference::Added(new) => format!("{path} {}", self.with(green, &format!("+{}", value(new)))),
            Difference::Removed(old) => format!("{path} {}", self.with(red, &format!("-{}", value(old)))),
            Difference::Changed(old, new) => {
                format!("{path} {} → {}", self.with(red, &value(old)), self.with(green, &value(new)))
            }
            Difference::Redacted => format!("{path} changed"),
        }
    }

    fn line(&self, path: &str, difference: &Difference) -> String {
        let (red, green) = (AnsiColor::Red.on_default(), AnsiColor::Green.on_default());
        let value = |text: &str| visible(&shortened(text, VALUE)).into_owned();
        let path = visible(path);
        match difference {
            Difference::Added(new) => self.with(green, &format!("  + {path}: {}", value(new))),
            Difference::Removed(old) => self.with(red, &format!("  - {path}: {}", value(old))),
            Difference::Changed(old, new) => {
                format!("    {path}: {} → {}", self.with(red, &value(old)), self.with(green, &value(new)))
            }
            Difference::Redacted => format!("    {path}: changed"),
        }
    }
}
