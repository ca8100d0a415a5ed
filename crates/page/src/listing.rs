//! The rows of the table of node groups: their conditions, the filter and the order.

use std::cmp::Ordering;

use super::{
    parts::Condition,
    view::{Filter, Order, ROWS, View},
};
use crate::state::{Group, HistoryOutcome, LeftOutObject, State};

#[derive(Clone, Debug)]
pub(super) struct Row<'a> {
    pub(super) object: Object<'a>,
    /// At least one, the most urgent first.
    pub(super) conditions: Vec<Condition>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Object<'a> {
    Group(&'a Group),
    LeftOut(&'a LeftOutObject),
}

impl<'a> Object<'a> {
    pub(super) fn id(self) -> &'a str {
        match self {
            Self::Group(group) => &group.id,
            Self::LeftOut(object) => &object.id,
        }
    }

    pub(super) fn cluster(self) -> &'a str {
        match self {
            Self::Group(group) => &group.cluster,
            Self::LeftOut(object) => &object.cluster,
        }
    }

    pub(super) fn kind(self) -> &'a str {
        self.id().split_once('/').map_or("", |(kind, _)| kind)
    }

    /// Returns its namespace and name, separated by a slash.
    pub(super) fn key(self) -> &'a str {
        self.id().split_once('/').map_or(self.id(), |(_, key)| key)
    }

    /// Returns the number in a column; `None` if it has none there.
    fn number(self, column: Order) -> Option<i64> {
        let Self::Group(group) = self else { return None };
        let count = |count: u64| i64::try_from(count).ok();
        match column {
            Order::Id | Order::Kind | Order::Urgency => None,
            Order::Size => Some(group.size.into()),
            Order::Min => Some(group.min_size.into()),
            Order::Max => Some(group.max_size.into()),
            Order::Running => count(group.counts.running),
            Order::Creating => count(group.counts.creating),
            Order::Deleting => count(group.counts.deleting),
            Order::Failed => count(group.counts.failed),
        }
    }
}

impl<'a> Row<'a> {
    pub(super) fn of_group(group: &'a Group) -> Self {
        let refused = group.history.first().is_some_and(|last| last.outcome != HistoryOutcome::Done);
        let moving = group.counts.creating > 0 || group.counts.deleting > 0 || group.written.is_some();
        let found = [
            (!group.problems.is_empty(), Condition::Problem),
            (refused, Condition::Refused),
            (group.counts.failed > 0, Condition::Failed),
            (group.size < group.min_size || group.size > group.max_size, Condition::OutsideBounds),
            (group.rollout.is_some(), Condition::RollingOut),
            (moving, Condition::Scaling),
        ];
        let mut conditions: Vec<_> = found.into_iter().filter_map(|(applies, it)| applies.then_some(it)).collect();
        if conditions.is_empty() {
            conditions.push(Condition::Steady);
        }
        Self { object: Object::Group(group), conditions }
    }

    pub(super) fn of_left_out(object: &'a LeftOutObject) -> Self {
        let condition = if object.invalid { Condition::LeftOut } else { Condition::NoGroup };
        Self { object: Object::LeftOut(object), conditions: vec![condition] }
    }
}

/// The rows that a view requests: those that contain its text, and those that have the Machine, Node or instance of this
/// name.
#[derive(Clone, Debug)]
pub(super) struct Listing<'a> {
    /// The rows of the page.
    pub(super) rows: Vec<Row<'a>>,
    /// The number of rows on all pages.
    pub(super) found: usize,
    /// The number of the page, which is the last one if the view requests one beyond it.
    pub(super) page: usize,
    pub(super) pages: usize,
    /// The number of rows with each condition, whatever the view requests.
    pub(super) counts: Vec<(Condition, usize)>,
}

impl<'a> Listing<'a> {
    pub(super) fn of(state: &'a State, named: &[String], view: &View) -> Self {
        // MachineSets that their MachineDeployments scale would double the table, and add no information.
        let left_out = state.left_out.iter().filter(|object| object.reason != LeftOutObject::OWNED);
        let rows = state.groups.iter().map(Row::of_group).chain(left_out.map(Row::of_left_out));
        let rows: Vec<_> = rows.collect();
        let counts = Condition::ALL.map(|it| (it, rows.iter().filter(|row| row.conditions.contains(&it)).count()));
        let text = view.text.to_lowercase();
        let is_named = |row: &Row<'_>| named.iter().any(|id| id == row.object.id());
        let is_found = |row: &Row<'_>| contains_text(row, &text) || is_named(row);
        let mut rows: Vec<_> =
            rows.into_iter().filter(|row| matches_filter(row, view.filter) && is_found(row)).collect();
        rows.sort_by(|a, b| compare(a, b, view));
        let (found, pages) = (rows.len(), rows.len().div_ceil(ROWS).max(1));
        let page = view.page.min(pages);
        let rows = rows.into_iter().skip((page - 1) * ROWS).take(ROWS).collect();
        Self { rows, found, page, pages, counts: counts.into() }
    }
}

fn compare(a: &Row<'_>, b: &Row<'_>, view: &View) -> Ordering {
    let (of_a, of_b) = (a.object, b.object);
    let numbers = (of_a.number(view.order), of_b.number(view.order));
    let order = match view.order {
        Order::Id => of_a.key().cmp(of_b.key()),
        Order::Kind => of_a.kind().cmp(of_b.kind()),
        Order::Urgency => a.conditions.first().cmp(&b.conditions.first()),
        Order::Size | Order::Min | Order::Max | Order::Running | Order::Creating | Order::Deleting | Order::Failed => {
            numbers.1.cmp(&numbers.0)
        }
    };
    // Objects without numbers come last, also in the reverse order.
    let order = match numbers {
        (Some(_), Some(_)) | (None, None) if view.reversed => order.reverse(),
        _ => order,
    };
    order.then_with(|| (of_a.key(), of_a.kind()).cmp(&(of_b.key(), of_b.kind())))
}

fn matches_filter(row: &Row<'_>, filter: Filter) -> bool {
    match filter {
        Filter::All => true,
        Filter::Groups => !row.conditions.contains(&Condition::NoGroup),
        Filter::Only(condition) => row.conditions.contains(&condition),
    }
}

fn contains_text(row: &Row<'_>, text: &str) -> bool {
    row.object.id().to_lowercase().contains(text) || row.object.cluster().to_lowercase().contains(text)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::state::{HistoryEntry, InstanceCounts, Problem, ProblemKind, Rollout, WrittenSize};

    fn group(name: &str) -> Group {
        Group {
            id: format!("MachineDeployment/team-a/{name}"),
            cluster: "prod".to_owned(),
            size: 3,
            min_size: 1,
            max_size: 5,
            ..Group::default()
        }
    }

    fn entry(outcome: HistoryOutcome) -> HistoryEntry {
        let (first, last) = Default::default();
        HistoryEntry { outcome, what: "x".into(), code: None, text: String::new(), first, last, times: 1 }
    }

    fn left_out(name: &str, reason: &str, invalid: bool) -> LeftOutObject {
        let id = format!("MachineDeployment/team-a/{name}");
        LeftOutObject { id, reason: reason.to_owned(), invalid, ..LeftOutObject::default() }
    }

    fn ids(state: &State, query: &str) -> Vec<String> {
        let listing = Listing::of(state, &[], &View::parse(query).unwrap());
        listing.rows.iter().map(|row| row.object.id().rsplit('/').next().unwrap().to_owned()).collect()
    }

    fn fleet() -> State {
        let problem = Problem::new(ProblemKind::Options, "wrong");
        State {
            groups: vec![
                group("calm"),
                Group {
                    counts: InstanceCounts { creating: 1, ..InstanceCounts::default() },
                    size: 4,
                    ..group("grows")
                },
                Group { problems: vec![problem], ..group("odd") },
            ],
            left_out: vec![
                left_out("broken", "invalid_bounds", true),
                left_out("paused", "paused", false),
                left_out("owned", LeftOutObject::OWNED, false),
            ],
            ..State::default()
        }
    }

    #[rstest]
    #[case::problems_first("", &["broken", "odd", "grows", "calm"])]
    #[case::by_id("sort=id", &["broken", "calm", "grows", "odd"])]
    #[case::by_size("sort=size", &["grows", "calm", "odd", "broken"])]
    #[case::smallest_first("sort=-size", &["calm", "odd", "grows", "broken"])]
    #[case::by_count("sort=creating", &["grows", "calm", "odd", "broken"])]
    #[case::least_urgent_first("sort=-urgency", &["calm", "grows", "odd", "broken"])]
    #[case::with_those_left_out_on_purpose("state=all", &["broken", "odd", "grows", "calm", "paused"])]
    #[case::of_one_state("state=scaling", &["grows"])]
    #[case::on_purpose("state=no-group", &["paused"])]
    #[case::by_text("q=OD", &["odd", "grows", "calm"])]
    #[case::by_text_of_its_id("q=a/gr", &["grows"])]
    #[case::nothing("q=none", &[])]
    fn rows_are_shown(#[case] query: &str, #[case] expected: &[&str]) {
        assert_eq!(ids(&fleet(), query), expected);
    }

    #[rstest]
    #[case::failed(Group { counts: InstanceCounts { failed: 1, ..InstanceCounts::default() }, ..group("a") }, &[Condition::Failed])]
    #[case::below_min(Group { size: 0, ..group("a") }, &[Condition::OutsideBounds])]
    #[case::above_max(Group { size: 6, ..group("a") }, &[Condition::OutsideBounds])]
    #[case::written(
        Group { written: Some(WrittenSize { replicas: 4, ago: 1 }), ..group("a") },
        &[Condition::Scaling]
    )]
    #[case::several(
        Group {
            rollout: Some(Rollout::default()),
            counts: InstanceCounts { deleting: 1, ..InstanceCounts::default() },
            history: vec![entry(HistoryOutcome::Refused)],
            ..group("a")
        },
        &[Condition::Refused, Condition::RollingOut, Condition::Scaling]
    )]
    #[case::a_refusal_that_is_over(
        Group {
            history: vec![entry(HistoryOutcome::Done), entry(HistoryOutcome::Failed)],
            ..group("a")
        },
        &[Condition::Steady]
    )]
    fn a_group_has_the_conditions(#[case] group: Group, #[case] expected: &[Condition]) {
        assert_eq!(Row::of_group(&group).conditions, expected);
    }

    #[test]
    fn a_page_beyond_the_last_is_the_last() {
        let state = State { groups: (0..250).map(|n| group(&format!("g{n:03}"))).collect(), ..State::default() };
        let listing = Listing::of(&state, &[], &View { page: 99, ..View::default() });
        assert_eq!((listing.page, listing.pages, listing.found, listing.rows.len()), (3, 3, 250, 50));
        assert_eq!(listing.rows[0].object.id(), "MachineDeployment/team-a/g200");
    }
}
