//! The report for people: a line per group of checks, what deserves attention, and the errors at the end, where a
//! terminal shows them. Texts from clusters and files must be escaped.

use std::fmt::Write as _;

use super::report::{CheckId, Finding, Report, Status};
use crate::cli::printing::{BAD, DIM, GOOD, ODD, Paint};
use rules::text::visible;

/// The groups of checks, in the order in which they are shown.
const GROUPS: [(&str, &[CheckId]); 5] = [
    ("configuration", &[CheckId::Flags, CheckId::Prices, CheckId::Tls, CheckId::ServerName]),
    ("clusters", &[CheckId::ManagementCluster, CheckId::ClusterApi, CheckId::WorkloadCluster]),
    ("permissions", &[CheckId::Right, CheckId::SizeWrite]),
    ("reads", &[CheckId::Reads]),
    ("node groups", &[CheckId::Scope, CheckId::NodeGroup, CheckId::FromZero, CheckId::TemplateKind, CheckId::Topology]),
];

/// Returns the report as text, ending with a newline. Without `verbose` the lines of single checks are those of warnings
/// and errors.
pub(super) fn text(report: &Report, verbose: bool, coloured: bool) -> String {
    let paint = Paint { coloured };
    let mut text = String::new();
    for (name, checks) in GROUPS {
        let findings: Vec<_> = report.checks.iter().filter(|finding| checks.contains(&finding.check)).collect();
        if findings.is_empty() {
            continue;
        }
        // Writing to a String can't fail.
        let _ = writeln!(text, "{} {name:<18} {}", paint.status(worst(&findings)), counts(&findings));
        let shown = findings.iter().filter(|finding| verbose || finding.status == Status::Warn);
        text.extend(shown.map(|finding| format!("  {}", paint.finding(finding))));
    }
    let Report { checks, errors, warnings, .. } = report;
    let more = if verbose { "" } else { "; -v shows all" };
    let [all, failed, warned] = [words(checks.len(), "check"), words(*errors, "error"), words(*warnings, "warning")];
    let _ = writeln!(text, "{all}: {failed}, {warned}{more}");
    if *errors > 0 {
        text.push('\n');
    }
    text.extend(checks.iter().filter(|finding| finding.status == Status::Error).map(|finding| paint.finding(finding)));
    text
}

/// Returns the status of a group, which is skipped only as a whole.
fn worst(findings: &[&Finding]) -> Status {
    let by_urgency = [Status::Error, Status::Warn, Status::Ok];
    let found = by_urgency.into_iter().find(|status| findings.iter().any(|finding| finding.status == *status));
    found.unwrap_or(Status::Skipped)
}

fn counts(findings: &[&Finding]) -> String {
    let count = |status| findings.iter().filter(|finding| finding.status == status).count();
    let (errors, warnings, skipped) = (count(Status::Error), count(Status::Warn), count(Status::Skipped));
    let parts = [
        (errors > 0).then(|| words(errors, "error")),
        (warnings > 0).then(|| words(warnings, "warning")),
        (skipped > 0).then(|| format!("{skipped} skipped")),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    let all = words(findings.len(), "check");
    if parts.is_empty() { all } else { format!("{all}: {}", parts.join(", ")) }
}

fn words(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

impl Paint {
    fn status(&self, status: Status) -> String {
        let style = match status {
            Status::Ok => GOOD,
            Status::Warn => ODD,
            Status::Error => BAD,
            Status::Skipped => DIM,
        };
        self.with(style, &format!("{:<7}", status.as_str()))
    }

    fn finding(&self, finding: &Finding) -> String {
        let status = self.status(finding.status);
        let subject =
            if finding.subject.is_empty() { String::new() } else { format!("{}: ", visible(&finding.subject)) };
        let remedy = finding.remedy.as_ref().map(|remedy| format!("; {}", visible(remedy))).unwrap_or_default();
        format!("{status} {:<18} {subject}{}{remedy}\n", finding.check.as_str(), visible(&finding.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::report::Findings;

    /// Returns a report with a check of each status.
    fn report() -> Report {
        let mut findings = Findings::default();
        findings.ok(CheckId::Flags, "", "they fit together");
        findings.ok(CheckId::ManagementCluster, "", "Kubernetes v1.36.0");
        findings.error(CheckId::Right, "management cluster", "patch machines: denied\u{1b}", "grant it");
        findings.ok(CheckId::Right, "management cluster", "list machines");
        findings.warn(CheckId::NodeGroup, "MachineDeployment/team-a/workers", "max is \"many\"", "");
        findings.skip(CheckId::FromZero, "the Nodes weren't read");
        findings.skip(CheckId::Reads, "see clusters");
        Report::from(findings.0)
    }

    #[test]
    fn a_group_is_a_line_warnings_follow_theirs_and_errors_come_last() {
        let lines = [
            "ok      configuration      1 check",
            "ok      clusters           1 check",
            "error   permissions        2 checks: 1 error",
            "skipped reads              1 check: 1 skipped",
            "warn    node groups        2 checks: 1 warning, 1 skipped",
            "  warn    node-group         MachineDeployment/team-a/workers: max is \"many\"",
            "7 checks: 1 error, 1 warning; -v shows all",
            "",
            "error   right              management cluster: patch machines: denied\\u{1b}; grant it",
        ];
        assert_eq!(text(&report(), false, false), lines.join("\n") + "\n");
    }

    #[test]
    fn verbose_shows_each_check_and_the_errors_again_at_the_end() {
        let shown = text(&report(), true, false);
        assert_eq!(shown.matches("denied\\u{1b}; grant it").count(), 2, "{shown}");
        for finding in report().checks {
            assert!(shown.contains(&format!("  {}", Paint { coloured: false }.finding(&finding))), "{shown}");
        }
    }

    #[test]
    fn every_check_is_in_one_group() {
        for check in CheckId::ALL {
            assert_eq!(GROUPS.iter().filter(|(_, checks)| checks.contains(&check)).count(), 1, "{}", check.as_str());
        }
    }
}
