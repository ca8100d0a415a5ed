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

/// Returns one line for the change, and one for each difference.
pub(super) fn text(change: &Change, coloured: bool) -> String {
    let paint = Paint { coloured };
    let (sign, colour, shown) = match change.action {
        Action::Added { initial: true } => ('=', AnsiColor::BrightBlack, 0),
        Action::Added { initial: false } => ('+', AnsiColor::Green, LINES_OF_NEW),
        Action::Modified => ('~', AnsiColor::Yellow, LINES),
        Action::Deleted { .. } => ('-', AnsiColor::Red, 0),
    };
    let identity = &change.identity;
    let dim = AnsiColor::BrightBlack.on_default();
    let head = colour.on_default().bold();
    let mut text = format!(
        "{} {} {}",
        paint.with(dim, &format!("{:.0}", identity.time)),
        paint.with(head, &format!("{sign} {}", visible(&change.object()))),
        paint.with(dim, &format!("rv={}", visible(&identity.resource_version))),
    );
    if change.action == (Action::Deleted { found_by_relist: true }) {
        text.push_str(" (missing from a list)");
    }
    if !change.changed_by.is_empty() && change.action != (Action::Added { initial: true }) {
        let by: Vec<_> = change.changed_by.iter().map(manager).collect();
        let _ = write!(text, " by {}", paint.with(AnsiColor::Cyan.on_default(), &by.join(", ")));
    }
    if let Some(problem) = &change.problem {
        let _ = write!(text, ": {}", visible(problem));
    }
    text.push('\n');
    let lines = change.lines();
    for line in lines.iter().take(shown) {
        let _ = writeln!(text, "{}", paint.line(&line.path, &line.difference));
    }
    if shown > 0 && lines.len() > shown {
        let _ = writeln!(text, "    … and {} more lines: -o json shows all", lines.len() - shown);
    }
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
