//! The parts of pages: the conditions of a row that people look for, times for people, and the bar of a node group, which
//! spans 0 to the max size and shows the requested size, the running part of it, and a mark at the min size. A text
//! alternative gives the same values.

use std::fmt;

use jiff::Timestamp;
use maud::{Markup, html};
use rules::named_enum;

use crate::state::{Group, Run};

named_enum! {
    /// A condition of a row that people look for; the most urgent first.
    #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
    pub(super) enum Condition {
        /// It isn't a node group because of an error.
        LeftOut = "left-out",
        /// It has problems; the settings that they concern are ignored.
        Problem = "problem",
        /// The last command for it was refused or failed.
        Refused = "refused",
        /// Instances of it have failed.
        Failed = "failed",
        /// Its size is below the min size or above the max size.
        OutsideBounds = "outside-bounds",
        /// It is rolling out, or about to.
        RollingOut = "rolling-out",
        /// Instances are being created or deleted.
        Scaling = "scaling",
        /// None of the other conditions is true.
        Steady = "steady",
        /// It isn't a node group, on purpose.
        NoGroup = "no-group",
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Severity {
    Bad,
    Odd,
    Busy,
    Good,
    Quiet,
}

impl Condition {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::LeftOut => "excluded",
            Self::Problem => "problem",
            Self::Refused => "last command refused or failed",
            Self::Failed => "failed instances",
            Self::OutsideBounds => "outside its bounds",
            Self::RollingOut => "rolling out",
            Self::Scaling => "scaling",
            Self::Steady => "steady",
            Self::NoGroup => "excluded on purpose",
        }
    }

    pub(super) fn severity(self) -> Severity {
        match self {
            Self::LeftOut | Self::Problem | Self::Refused | Self::Failed => Severity::Bad,
            Self::OutsideBounds | Self::RollingOut => Severity::Odd,
            Self::Scaling => Severity::Busy,
            Self::Steady => Severity::Good,
            Self::NoGroup => Severity::Quiet,
        }
    }
}

/// Formats a duration in its two largest units, such as `3 h 5 min`.
pub(super) fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |count: u64, unit: &str, rest: u64, small: &str| {
        if rest == 0 { format!("{count} {unit}") } else { format!("{count} {unit} {rest} {small}") }
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => two(minutes, "min", seconds % 60, "s"),
        3600..86_400 => two(hours, "h", minutes % 60, "min"),
        _ => two(days, "d", hours % 24, "h"),
    }
}

pub(super) fn utc(moment: Timestamp) -> impl fmt::Display {
    moment.strftime("%F %T UTC")
}

/// The time at which a state was taken, to which other times are relative.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now(pub(super) Timestamp);

impl Now {
    /// Returns the seconds since a time; negative if it lies in the future.
    pub(super) fn seconds_since(self, moment: Timestamp) -> i64 {
        self.0.duration_since(moment).as_secs()
    }

    /// Renders the time since a moment, or until it, with the moment itself for programs and as a tooltip.
    pub(super) fn ago(self, moment: Timestamp) -> Markup {
        let seconds = self.seconds_since(moment);
        let span = span(seconds.unsigned_abs());
        let text = if seconds >= 0 { format!("{span} ago") } else { format!("in {span}") };
        html! { time datetime=(moment) title=(utc(moment)) { (text) } }
    }

    /// Renders the time since a moment, with the moment itself below.
    pub(super) fn ago_and_when(self, moment: Timestamp) -> Markup {
        html! { (self.ago(moment)) div class="aside when" { (utc(moment)) } }
    }

    /// Renders the age of something that was created at this time.
    pub(super) fn age(self, moment: Timestamp) -> Markup {
        let seconds = u64::try_from(self.seconds_since(moment)).unwrap_or_default();
        html! { time datetime=(moment) title=(utc(moment)) { (span(seconds)) } }
    }
}

/// The width of the drawing, in its own units.
const WIDTH: f64 = 200.0;
/// The height of the graph, in the same units.
const HEIGHT: f64 = 40.0;

pub(super) fn bar(group: &Group) -> Markup {
    // A size beyond its bounds is drawn too.
    let most = f64::from(group.max_size.max(group.size).max(1));
    let at = |size: f64| size.clamp(0.0, most) / most * WIDTH;
    let size = f64::from(group.size.max(0));
    let running = f64::from(u32::try_from(group.counts.running).unwrap_or(u32::MAX)).min(size);
    html! {
        svg class="bar" viewBox="0 0 200 12" preserveAspectRatio="none" role="img" aria-label=(description(group)) {
            rect class="track" x="0" y="2" width="200" height="8" {}
            rect class="asked" x="0" y="2" width=(number(at(size))) height="8" {}
            rect class="running" x="0" y="2" width=(number(at(running))) height="8" {}
            @if group.min_size > 0 {
                rect class="least" x=(number((at(f64::from(group.min_size)) - 1.0).max(0.0))) y="0" width="2" height="12" {}
            }
            @if group.size > group.max_size {
                rect class="most" x=(number(at(f64::from(group.max_size)) - 1.0)) y="0" width="2" height="12" {}
            }
        }
    }
}

/// Renders the size and the Nodes of a group over time, as steps that touch both edges; nothing for a single sample.
pub(super) fn graph(runs: &[Run]) -> Markup {
    let minutes: u32 = runs.iter().map(|run| u32::from(run.minutes)).sum();
    let Some(most) = runs.iter().map(|run| run.size.max(run.nodes)).max().filter(|_| minutes > 1) else {
        return html! {};
    };
    let steps = |value: fn(&Run) -> u16| {
        let mut at = 0;
        let points = runs.iter().flat_map(|run| {
            let begin = at;
            at += u32::from(run.minutes);
            let y = number(HEIGHT - f64::from(value(run)) / f64::from(most.max(1)) * (HEIGHT - 2.0) - 1.0);
            [begin, at].map(|at| format!("{},{y}", number(f64::from(at) / f64::from(minutes) * WIDTH)))
        });
        points.collect::<Vec<_>>().join(" ")
    };
    let (size, nodes) = (range(runs, |run| run.size), range(runs, |run| run.nodes));
    let text = format!("last {}: size {size}, Nodes {nodes}", span(u64::from(minutes) * 60));
    html! {
        figure {
            svg class="graph" viewBox="0 0 200 40" preserveAspectRatio="none" role="img" aria-label=(text) {
                polygon class="running" points={ "0,40 " (steps(|run| run.nodes)) " 200,40" } {}
                polyline class="size" points=(steps(|run| run.size)) {}
            }
            figcaption { (text) " (line: size, area: Nodes)" }
        }
    }
}

fn range(runs: &[Run], value: fn(&Run) -> u16) -> String {
    let (least, most) = (runs.iter().map(value).min(), runs.iter().map(value).max());
    let (least, most) = (least.unwrap_or_default(), most.unwrap_or_default());
    if least == most { least.to_string() } else { format!("{least}–{most}") }
}

pub(super) fn description(group: &Group) -> String {
    format!("size {}, {} running, between {} and {}", group.size, group.counts.running, group.min_size, group.max_size)
}

fn number(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::state::InstanceCounts;

    fn drawn(min_size: i32, size: i32, max_size: i32, running: u64) -> String {
        let counts = InstanceCounts { running, ..InstanceCounts::default() };
        bar(&Group { min_size, max_size, size, counts, ..Group::default() }).into_string()
    }

    #[test]
    fn it_shows_running_size_and_min_against_max_and_says_so() {
        let bar = drawn(1, 5, 10, 4);
        for part in [
            r#"aria-label="size 5, 4 running, between 1 and 10""#,
            r#"class="asked" x="0" y="2" width="100.0""#,
            r#"class="running" x="0" y="2" width="80.0""#,
            r#"class="least" x="19.0""#,
        ] {
            assert!(bar.contains(part), "{part}: {bar}");
        }
        assert!(!bar.contains("most"), "{bar}");
    }

    #[test]
    fn a_size_beyond_the_largest_is_drawn_with_a_mark_at_that() {
        let bar = drawn(0, 20, 10, 30);
        assert!(bar.contains(r#"class="running" x="0" y="2" width="200.0""#), "{bar}");
        assert!(bar.contains(r#"class="most" x="99.0""#) && !bar.contains("least"), "{bar}");
    }

    #[test]
    fn a_graph_has_a_step_for_each_change() {
        let run = |minutes, size, nodes| Run { minutes, size, nodes };
        let graph = graph(&[run(60, 2, 2), run(20, 4, 2), run(20, 4, 4)]).into_string();
        for part in [
            r#"aria-label="last 1 h 40 min: size 2–4, Nodes 2–4""#,
            r#"class="size" points="0.0,20.0 120.0,20.0 120.0,1.0 160.0,1.0 160.0,1.0 200.0,1.0""#,
            r#"class="running" points="0,40 0.0,20.0 120.0,20.0 120.0,20.0 160.0,20.0 160.0,1.0 200.0,1.0 200,40""#,
        ] {
            assert!(graph.contains(part), "{part}: {graph}");
        }
    }

    #[test]
    fn a_graph_of_nothing_can_be_drawn() {
        assert_eq!(graph(&[]).into_string(), "");
        assert_eq!(graph(&[Run { minutes: 1, size: 3, nodes: 3 }]).into_string(), "");
        assert!(graph(&[Run { minutes: 2, size: 0, nodes: 0 }]).into_string().contains("0.0,39.0 200.0,39.0"));
    }

    #[test]
    fn a_group_of_nothing_can_be_drawn() {
        assert!(drawn(0, 0, 0, 0).contains(r#"class="asked" x="0" y="2" width="0.0""#));
        assert!(drawn(0, -1, -1, u64::MAX).contains("size -1"));
    }

    #[rstest]
    #[case(0, "0 s")]
    #[case(59, "59 s")]
    #[case(60, "1 min")]
    #[case(61, "1 min 1 s")]
    #[case(3599, "59 min 59 s")]
    #[case(3600, "1 h")]
    #[case(11_100, "3 h 5 min")]
    #[case(86_400, "1 d")]
    #[case(187_200, "2 d 4 h")]
    fn a_time_is_said_in_its_two_largest_units(#[case] seconds: u64, #[case] expected: &str) {
        assert_eq!(span(seconds), expected);
    }

    #[rstest]
    #[case("2026-01-01T00:00:00Z", "1 min ago")]
    #[case("2026-01-01T00:03:00Z", "in 2 min")]
    fn a_moment_is_seen_from_now(#[case] moment: Timestamp, #[case] expected: &str) {
        let shown = Now("2026-01-01T00:01:00Z".parse().unwrap()).ago(moment).into_string();
        assert!(shown.ends_with(&format!(">{expected}</time>")), "{shown}");
    }
}
