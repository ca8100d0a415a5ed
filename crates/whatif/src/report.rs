//! What a run has found: a timeline and tables for people, and the same as JSON.

use std::fmt::Write as _;

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

/// Pods of one owner that have no Node, for the same reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// The owner, or the Pod itself.
    pub of: String,
    /// The Pods.
    pub pods: Vec<String>,
    /// What Cluster Autoscaler said of them last.
    pub autoscaler: Option<String>,
    /// What the scheduler said.
    pub scheduler: Option<String>,
    /// What they need that isn't simulated.
    pub not_simulated: Vec<String>,
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
    /// Returns true if no Pod is left without a Node.
    pub fn all_run(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns what comes after the timeline, for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write_groups(&mut text);
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
            Ended::Until => "--until was over; something may still have moved",
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
                let cost = |size: i64| group.price_per_hour.map_or("?".to_owned(), |price| money(price, size));
                row.push(change(cost(group.before), cost(group.after)));
            }
            rows.push(row);
        }
        if has_prices {
            let total = |size: fn(&Group) -> i64| {
                let priced = self.groups.iter().filter_map(|group| Some((group.price_per_hour?, size(group))));
                format!(
                    "{:.3}",
                    priced.map(|(price, size)| price * f64::from(i32::try_from(size).unwrap_or(i32::MAX))).sum::<f64>()
                )
            };
            let cost = change(total(|group| group.before), total(|group| group.after));
            rows.push(vec!["all".to_owned(), String::new(), String::new(), cost]);
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
        let mut differences = Vec::new();
        for group in &self.groups {
            let after = other.groups.iter().find(|known| known.id == group.id).map(|known| known.after);
            if after != Some(group.after) {
                let after = after.map_or_else(|| "none".to_owned(), |after| after.to_string());
                differences.push(format!("{}: size {} and {after}", group.id, group.after));
            }
        }
        let names = |report: &Self| {
            let mut names: Vec<String> =
                report.pending.iter().map(|pending| format!("{} × {}", pending.pods.len(), pending.of)).collect();
            names.sort();
            names
        };
        let (ours, theirs) = (names(self), names(other));
        if ours != theirs {
            let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            differences.push(format!("Pods without a Node: {} and {}", list(&ours), list(&theirs)));
        }
        differences
    }
}

/// Returns reports as tests in the format of JUnit: one that fails for each owner of Pods without a Node, and one that
/// doesn't for all others.
pub fn junit(reports: &[Report]) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for report in reports {
        let (name, failures) = (escape(&format!("Cluster Autoscaler {}", report.autoscaler)), report.pending.len());
        let tests = failures + 1;
        let _ = writeln!(text, "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\">");
        let _ = writeln!(text, "    <testcase classname=\"whatif\" name=\"{} Pods have a Node\"/>", report.running);
        for pending in &report.pending {
            let words = [pending.autoscaler.as_deref(), pending.scheduler.as_deref()].into_iter().flatten();
            let why = words.chain(pending.not_simulated.iter().map(String::as_str)).collect::<Vec<_>>().join("; ");
            let _ = writeln!(text, "    <testcase classname=\"whatif\" name=\"{}\">", escape(&pending.of));
            let _ = writeln!(
                text,
                "      <failure message=\"{}\">{}</failure>",
                escape(&why),
                escape(&pending.pods.join("\n"))
            );
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

fn money(price: f64, size: i64) -> String {
    format!("{:.3}", price * f64::from(i32::try_from(size).unwrap_or(i32::MAX)))
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
            running: 4,
            finished: 0,
            pending: vec![Pending {
                of: "Job a/train".to_owned(),
                pods: vec!["a/train-1".to_owned(), "a/train-2".to_owned()],
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
all                                          0.500 → 1.500

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
        assert!(text.contains("<testsuite name=\"Cluster Autoscaler 1.36.1\" tests=\"2\" failures=\"1\">"), "{text}");
        assert!(
            text.contains(
                "<failure message=\"1 max node group size reached; a &lt; b\">a/train-1\na/train-2</failure>"
            ),
            "{text}"
        );
    }

    #[test]
    fn differences_are_sizes_and_pods_without_a_node() {
        let (one, mut other) = (report(), report());
        assert!(one.differences(&other).is_empty());
        other.groups[0].after = 4;
        other.pending.clear();
        assert_eq!(
            one.differences(&other),
            ["MachineDeployment/a/b: size 3 and 4", "Pods without a Node: 2 × Job a/train and none"]
        );
    }
}
