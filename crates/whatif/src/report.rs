//! What a run has found: a timeline and tables for people, and the same as JSON.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde::Serialize;

/// The version of the JSON form.
pub const SCHEMA_VERSION: u32 = 1;

/// What Cluster Autoscaler did.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The version of the JSON form.
    pub schema_version: u32,
    /// The version of Cluster Autoscaler.
    pub autoscaler: String,
    /// The scheduler that bound Pods.
    pub scheduler: String,
    /// The factor by which simulated time went faster.
    pub speed: u32,
    /// The simulated time that passed, in seconds.
    pub seconds: u64,
    /// Why the run ended.
    pub ended: Ended,
    /// The node groups.
    pub groups: Vec<Group>,
    /// What could be a node group and isn't one.
    pub excluded: Vec<Excluded>,
    /// The number of Pods that have a Node.
    pub running: usize,
    /// The number of Pods that have ended.
    pub finished: usize,
    /// The Pods without a Node.
    pub pending: Vec<Pending>,
    /// The Nodes that went.
    pub removed: Vec<Removed>,
    /// What happened.
    pub timeline: Vec<Entry>,
    /// What the answer leaves out.
    pub not_simulated: Vec<String>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Ended {
    /// Nothing moved any more.
    Quiet,
    /// The time of `--until` was over.
    Until,
}

/// A node group, before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// The id by which Cluster Autoscaler knows it.
    pub id: String,
    /// The min size.
    pub min: i32,
    /// The max size.
    pub max: i32,
    /// The size at the beginning.
    pub before: i64,
    /// The largest size in between.
    pub most: i64,
    /// The size at the end.
    pub after: i64,
    /// The price of one of its Nodes per hour, if it is known.
    pub price_per_hour: Option<f64>,
}

/// A MachineDeployment, MachineSet or MachinePool that isn't a node group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Excluded {
    /// The id that it would have.
    pub id: String,
    /// Why it isn't one, and what to do.
    pub reason: String,
}

/// Pods of one owner that have no Node, for the same reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// The owner, or the Pod itself.
    pub of: String,
    /// The Pods.
    pub pods: Vec<String>,
    /// Whether they were Pending in the manifests already.
    pub was_pending: bool,
    /// What Cluster Autoscaler said of them last.
    pub autoscaler: Option<String>,
    /// What the scheduler said.
    pub scheduler: Option<String>,
    /// What they need that isn't simulated: the scheduler here leaves them out.
    pub not_simulated: Vec<String>,
}

/// The answer to the question whether all Pods fit, from the best to the worst.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Answer {
    /// All Pods have a Node, except those that were Pending already.
    Yes,
    /// That isn't known of Pods that only the scheduler here leaves out.
    Unknown,
    /// Pods stay without a Node.
    No,
}

impl Pending {
    fn answer(&self) -> Answer {
        match (self.was_pending, self.not_simulated.is_empty()) {
            (true, _) => Answer::Yes,
            (false, true) => Answer::No,
            (false, false) => Answer::Unknown,
        }
    }

    /// Returns why these Pods are no failure, for people.
    fn remark(&self) -> Option<&'static str> {
        match self.answer() {
            Answer::Yes => Some("Pending in the manifests already"),
            Answer::Unknown => Some("there is no answer for these Pods: use --scheduler"),
            Answer::No => None,
        }
    }
}

/// A Node that went.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Removed {
    /// The Node.
    pub node: String,
    /// The id of its group.
    pub group: Option<String>,
    /// What Cluster Autoscaler said.
    pub reason: Option<String>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The simulated time since the beginning, in seconds.
    pub seconds: u64,
    /// What happened.
    pub what: String,
}

impl Entry {
    /// Returns the line of a timeline.
    pub fn line(&self) -> String {
        format!("{:>8}  {}", clock(self.seconds), self.what)
    }
}

/// Returns a time as `1:02:03` or `2:03`.
pub fn clock(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

impl Report {
    /// Returns whether all Pods fit that weren't Pending already.
    pub fn answer(&self) -> Answer {
        self.pending.iter().map(Pending::answer).max().unwrap_or(Answer::Yes)
    }

    /// Returns what comes after the timeline, for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write_groups(&mut text);
        if !self.excluded.is_empty() {
            let _ = writeln!(text, "\nNo node groups:");
            for excluded in &self.excluded {
                let _ = writeln!(text, "  {}: {}", excluded.id, excluded.reason);
            }
        }
        self.write_pods(&mut text);
        if !self.removed.is_empty() {
            let _ = writeln!(text, "\nNodes that went:");
            for removed in &self.removed {
                let group = removed.group.as_deref().unwrap_or("no group");
                let _ = writeln!(text, "  {} of {group}", removed.node);
                if let Some(reason) = &removed.reason {
                    let _ = writeln!(text, "    {reason}");
                }
            }
        }
        let ended = match self.ended {
            Ended::Quiet => "nothing moved any more",
            Ended::Until => "--until was over; something may still move, and the exit code is for the Pods as of now",
        };
        let _ = writeln!(text, "\nEnded after {} of simulated time: {ended}.", clock(self.seconds));
        if !self.not_simulated.is_empty() {
            let _ = writeln!(text, "\nNot simulated:");
            for what in &self.not_simulated {
                let _ = writeln!(text, "  - {what}");
            }
        }
        text
    }

    fn write_groups(&self, text: &mut String) {
        let has_prices = self.groups.iter().any(|group| group.price_per_hour.is_some());
        let mut rows = vec![vec!["group".to_owned(), "bounds".to_owned(), "size".to_owned()]];
        if has_prices {
            rows[0].push("per hour".to_owned());
        }
        let change =
            |before: String, after: String| if before == after { before } else { format!("{before} → {after}") };
        for group in &self.groups {
            let bounds = format!("{}..{}", group.min, group.max);
            let mut size = change(group.before.to_string(), group.after.to_string());
            if group.most > group.before.max(group.after) {
                let _ = write!(size, ", {} at most", group.most);
            }
            let mut row = vec![group.id.clone(), bounds, size];
            if has_prices {
                let money =
                    |size| group.price_per_hour.map_or("?".to_owned(), |price| format!("{:.3}", cost(price, size)));
                row.push(change(money(group.before), money(group.after)));
            }
            rows.push(row);
        }
        if has_prices {
            let total = |size: fn(&Group) -> i64| {
                let priced = self.groups.iter().filter_map(|group| Some(cost(group.price_per_hour?, size(group))));
                let is_unknown = |group: &Group| group.price_per_hour.is_none() && size(group) > 0;
                let more = if self.groups.iter().any(is_unknown) { " + ?" } else { "" };
                format!("{:.3}{more}", priced.sum::<f64>())
            };
            let money = change(total(|group| group.before), total(|group| group.after));
            rows.push(vec!["all".to_owned(), String::new(), String::new(), money]);
        }
        write_table(text, &rows);
    }

    fn write_pods(&self, text: &mut String) {
        let pending: usize = self.pending.iter().map(|pending| pending.pods.len()).sum();
        let all = self.running + pending;
        let finished = if self.finished == 0 { String::new() } else { format!("; {} have ended", self.finished) };
        let _ = writeln!(text, "\n{} of {all} Pods have a Node{finished}.", self.running);
        if pending > 0 {
            let _ = writeln!(text, "\nPods without a Node:");
        }
        for pending in &self.pending {
            let count = if pending.pods.len() == 1 { String::new() } else { format!("{} of ", pending.pods.len()) };
            let _ = writeln!(text, "  {count}{}", pending.of);
            for what in &pending.not_simulated {
                let _ = writeln!(text, "    not simulated: {what}");
            }
            if let Some(remark) = pending.remark() {
                let _ = writeln!(text, "    {remark}");
            }
            if let Some(words) = &pending.autoscaler {
                let _ = writeln!(text, "    Cluster Autoscaler: {words}");
            }
            if let Some(words) = &pending.scheduler {
                let _ = writeln!(text, "    scheduler: {words}");
            }
        }
    }

    /// Returns what another run decided otherwise, for people; nothing if it decided the same.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let ids: BTreeSet<&str> = self.groups.iter().chain(&other.groups).map(|group| group.id.as_str()).collect();
        let mut differences = Vec::new();
        for id in ids {
            let (ours, theirs) = (self.course_of(id), other.course_of(id));
            if ours != theirs {
                differences.push(format!("{id}: {ours} and {theirs}"));
            }
        }
        let (ours, theirs) = (self.pending_by_owner(), other.pending_by_owner());
        if ours != theirs {
            differences.push(format!("Pods without a Node: {ours} and {theirs}"));
        }
        differences
    }

    /// Returns what became of a group, for people. Jobs end, so that its size alone may be as before.
    fn course_of(&self, id: &str) -> String {
        let Some(group) = self.groups.iter().find(|group| group.id == id) else { return "no group".to_owned() };
        let gone = self.removed.iter().filter(|removed| removed.group.as_deref() == Some(id)).count();
        format!("size {} ({} at most, {gone} gone)", group.after, group.most)
    }

    fn pending_by_owner(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for pending in &self.pending {
            *counts.entry(&pending.of).or_default() += pending.pods.len();
        }
        let counts: Vec<_> = counts.iter().map(|(of, count)| format!("{count} × {of}")).collect();
        if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
    }
}

/// Two reports, with what they decide differently.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Compared<'a> {
    schema_version: u32,
    differences: Vec<String>,
    reports: [&'a Report; 2],
}

/// Returns a report as JSON, or two with their differences.
pub fn json(reports: &[Report]) -> serde_json::Result<String> {
    let [one, other] = reports else { return serde_json::to_string_pretty(&reports.first()) };
    let differences = one.differences(other);
    let compared = Compared { schema_version: SCHEMA_VERSION, differences, reports: [one, other] };
    serde_json::to_string_pretty(&compared)
}

/// Returns reports as tests in the format of JUnit: one for each owner of Pods without a Node, which fails, or is
/// skipped if they don't count or have no answer, and one that passes for all others.
pub fn junit(reports: &[Report]) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for report in reports {
        let name = escape(&format!("Cluster Autoscaler {}", report.autoscaler));
        let failures = report.pending.iter().filter(|pending| pending.remark().is_none()).count();
        let (tests, skipped) = (report.pending.len() + 1, report.pending.len() - failures);
        let counts = format!("tests=\"{tests}\" failures=\"{failures}\" skipped=\"{skipped}\"");
        let _ = writeln!(text, "  <testsuite name=\"{name}\" {counts}>");
        let _ = writeln!(text, "    <testcase classname=\"whatif\" name=\"{} Pods have a Node\"/>", report.running);
        for pending in &report.pending {
            let remark = pending.remark();
            let words = [remark, pending.autoscaler.as_deref(), pending.scheduler.as_deref()].into_iter().flatten();
            let why = words.chain(pending.not_simulated.iter().map(String::as_str)).collect::<Vec<_>>().join("; ");
            let (why, pods) = (escape(&why), escape(&pending.pods.join("\n")));
            let element = if remark.is_some() { "skipped" } else { "failure" };
            let _ = writeln!(text, "    <testcase classname=\"whatif\" name=\"{}\">", escape(&pending.of));
            let _ = writeln!(text, "      <{element} message=\"{why}\">{pods}</{element}>");
            text.push_str("    </testcase>\n");
        }
        text.push_str("  </testsuite>\n");
    }
    text.push_str("</testsuites>");
    text
}

/// Escapes a text for XML, which has no control characters.
fn escape(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control() || *c == '\n').collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn cost(price: f64, size: i64) -> f64 {
    price * f64::from(i32::try_from(size).unwrap_or(i32::MAX))
}

fn write_table(text: &mut String, rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn report() -> Report {
        let group = |id: &str, before, after, price_per_hour| Group {
            id: id.to_owned(),
            min: 0,
            max: 10,
            before,
            most: 3,
            after,
            price_per_hour,
        };
        Report {
            schema_version: SCHEMA_VERSION,
            autoscaler: "1.36.1".to_owned(),
            scheduler: "built in".to_owned(),
            speed: 60,
            seconds: 3725,
            ended: Ended::Quiet,
            groups: vec![group("MachineDeployment/a/b", 1, 3, Some(0.5)), group("MachineSet/a/c", 2, 2, None)],
            excluded: vec![Excluded { id: "MachineDeployment/a/d".to_owned(), reason: "it is paused".to_owned() }],
            running: 4,
            finished: 0,
            pending: vec![Pending {
                of: "Job a/train".to_owned(),
                pods: vec!["a/train-1".to_owned(), "a/train-2".to_owned()],
                was_pending: false,
                autoscaler: Some("1 max node group size reached".to_owned()),
                scheduler: None,
                not_simulated: Vec::new(),
            }],
            removed: Vec::new(),
            timeline: Vec::new(),
            not_simulated: vec!["heartbeats".to_owned()],
        }
    }

    #[test]
    fn a_report_is_a_table_and_words() {
        let expected = "\
group                  bounds  size          per hour
MachineDeployment/a/b  0..10   1 → 3         0.500 → 1.500
MachineSet/a/c         0..10   2, 3 at most  ?
all                                          0.500 + ? → 1.500 + ?

No node groups:
  MachineDeployment/a/d: it is paused

4 of 6 Pods have a Node.

Pods without a Node:
  2 of Job a/train
    Cluster Autoscaler: 1 max node group size reached

Ended after 1:02:05 of simulated time: nothing moved any more.

Not simulated:
  - heartbeats
";
        assert_eq!(report().text(), expected);
    }

    #[test]
    fn pods_without_a_node_are_tests_that_fail() {
        let mut report = report();
        report.pending[0].scheduler = Some("a < b".to_owned());
        let text = junit(&[report]);
        let suite = "<testsuite name=\"Cluster Autoscaler 1.36.1\" tests=\"2\" failures=\"1\" skipped=\"0\">";
        assert!(text.contains(suite), "{text}");
        assert!(
            text.contains(
                "<failure message=\"1 max node group size reached; a &lt; b\">a/train-1\na/train-2</failure>"
            ),
            "{text}"
        );
    }

    #[rstest]
    #[case::of_this_change(false, &[], Answer::No, "<failure message=\"1 max node group size reached\">a/train-1")]
    #[case::of_before(true, &[], Answer::Yes, "<skipped message=\"Pending in the manifests already; 1 max")]
    #[case::left_out(
        false, &["volumes"], Answer::Unknown, "<skipped message=\"there is no answer for these Pods: use --scheduler; 1"
    )]
    #[case::left_out_before(true, &["volumes"], Answer::Yes, "<skipped message=\"Pending in the manifests already; 1")]
    fn pods_that_waited_before_or_are_left_out_are_no_failures(
        #[case] was_pending: bool,
        #[case] not_simulated: &[&str],
        #[case] answer: Answer,
        #[case] part: &str,
    ) {
        let mut report = report();
        report.pending[0].was_pending = was_pending;
        report.pending[0].not_simulated = not_simulated.iter().map(|&what| what.to_owned()).collect();
        assert_eq!(report.answer(), answer);
        let remark = report.pending[0].remark().map(|remark| format!("\n    {remark}\n")).unwrap_or_default();
        assert!(report.text().contains(&remark), "{}", report.text());
        let text = junit(&[report]);
        assert!(text.contains(part), "{text}");
    }

    #[test]
    fn the_worst_of_all_pods_is_the_answer() {
        let mut report = report();
        report.pending.push(Pending { was_pending: true, ..report.pending[0].clone() });
        report.pending.push(Pending { not_simulated: vec!["volumes".to_owned()], ..report.pending[0].clone() });
        assert_eq!(report.answer(), Answer::No);
        report.pending.remove(0);
        assert_eq!(report.answer(), Answer::Unknown);
        report.pending.clear();
        assert_eq!(report.answer(), Answer::Yes);
    }

    #[test]
    fn differences_are_sizes_nodes_that_went_and_pods_without_a_node() {
        let (one, mut other) = (report(), report());
        assert!(one.differences(&other).is_empty());
        other.groups[0].after = 4;
        other.pending.clear();
        assert_eq!(
            one.differences(&other),
            [
                "MachineDeployment/a/b: size 3 (3 at most, 0 gone) and size 4 (3 at most, 0 gone)",
                "Pods without a Node: 2 × Job a/train and none"
            ]
        );
    }

    #[test]
    fn groups_that_end_at_the_same_size_differ_by_what_was_in_between() {
        let (one, mut other) = (report(), report());
        other.groups[0].most = 5;
        let removed = Removed { node: "c-1".to_owned(), group: Some("MachineSet/a/c".to_owned()), reason: None };
        other.removed = vec![removed.clone(), removed];
        other.groups.push(Group { id: "MachineSet/a/d".to_owned(), ..other.groups[1].clone() });
        assert_eq!(
            one.differences(&other),
            [
                "MachineDeployment/a/b: size 3 (3 at most, 0 gone) and size 3 (5 at most, 0 gone)",
                "MachineSet/a/c: size 2 (3 at most, 0 gone) and size 2 (3 at most, 2 gone)",
                "MachineSet/a/d: no group and size 2 (3 at most, 0 gone)",
            ]
        );
    }

    #[test]
    fn two_reports_are_json_with_their_differences() {
        let (one, mut other) = (report(), report());
        other.groups[0].most = 5;
        let parsed = |reports: &[Report]| serde_json::from_str::<serde_json::Value>(&json(reports).unwrap()).unwrap();
        assert_eq!(parsed(std::slice::from_ref(&one))["pending"][0]["wasPending"], false);
        let both = parsed(&[one, other]);
        assert_eq!(both["differences"].as_array().unwrap().len(), 1, "{both}");
        assert_eq!(both["reports"][1]["groups"][0]["most"], 5);
    }
}
