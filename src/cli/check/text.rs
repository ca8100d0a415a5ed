//! The report for people: a line per check. Texts from clusters and files must be escaped.

use super::report::{Finding, Report, Status};
use crate::cli::printing::{BAD, DIM, GOOD, ODD, Paint};
use rules::text::visible;

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
    let status = Paint { coloured }.with(style, &status);
    let subject = if finding.subject.is_empty() { String::new() } else { format!("{}: ", visible(&finding.subject)) };
    let remedy = finding.remedy.as_ref().map(|remedy| format!("; {}", visible(remedy))).unwrap_or_default();
    format!("{status} {:<18} {subject}{}{remedy}\n", finding.check.as_str(), visible(&finding.message))
}
