//! The report for people: a line per check. Texts from clusters and files must be escaped.

use anstyle::{AnsiColor, Style};

use super::report::{Finding, Report, Status};
use crate::text::visible;

const GOOD: Style = AnsiColor::Green.on_default();
const ODD: Style = AnsiColor::Yellow.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const DIM: Style = AnsiColor::BrightBlack.on_default();

/// Returns the report as text, ending with a newline.
pub(super) fn text(report: &Report, coloured: bool) -> String {
    let lines: String = report.checks.iter().map(|finding| line(finding, coloured)).collect();
    let Report { checks, errors, warnings, .. } = report;
    format!("{lines}{} checks: {errors} errors, {warnings} warnings\n", checks.len())
}

fn line(finding: &Finding, coloured: bool) -> String {
    let style = match finding.status {
        Status::Ok => GOOD,
        Status::Warn => ODD,
        Status::Error => BAD,
        Status::Skipped => DIM,
    };
    let status = format!("{:<7}", finding.status.as_str());
    let status = if coloured { format!("{style}{status}{style:#}") } else { status };
    let subject = if finding.subject.is_empty() { String::new() } else { format!("{}: ", visible(&finding.subject)) };
    let remedy = finding.remedy.as_ref().map(|remedy| format!("; {}", visible(remedy))).unwrap_or_default();
    format!("{status} {:<18} {subject}{}{remedy}\n", finding.check.as_str(), visible(&finding.message))
}
