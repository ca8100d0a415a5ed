//! Problems of a group, worded once for the log, metrics and all other outputs.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use arcstr::ArcStr;
use serde::{Deserialize, Serialize};

use crate::named_enum;

named_enum! {
    /// The class of a problem, with its name as a metric label.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ProblemKind {
        /// The min or max size annotation.
        Bounds = "bounds",
        /// A capacity annotation or an entry of status.capacity.
        Capacity = "capacity",
        /// The labels annotation.
        Labels = "labels",
        /// The taints annotation or a taint of the template.
        Taints = "taints",
        /// An override of an autoscaling option.
        Options = "options",
        /// The price annotation.
        Price = "price",
        /// The infrastructure template, which can't be read.
        Template = "template",
        /// The object itself, which can't be decoded.
        Undecodable = "undecodable",
    }
}

/// A problem: its message names the field, its value, the rule and the remedy. The caller names the object.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The class.
    pub kind: ProblemKind,
    /// The message, for people.
    pub message: String,
}

impl Problem {
    /// Returns a problem of this kind.
    pub fn new(kind: ProblemKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Returns a problem of an annotation's whole value; `rule` states what is allowed and what to do.
    pub fn annotation(kind: ProblemKind, key: &str, value: &str, rule: &str) -> Self {
        Self::new(kind, format!("annotation {key} is {:?}: {rule}", Clipped(value)))
    }

    /// Returns a problem of one entry of an annotation that holds a list.
    pub(crate) fn annotation_entry(kind: ProblemKind, key: &str, entry: &str, rule: &str) -> Self {
        Self::new(kind, format!("annotation {key}, entry {:?}: {rule}", Clipped(entry)))
    }
}

/// Returns what an annotation of `true` or `false` says, or `default` without one.
///
/// # Errors
/// If it is neither of them.
pub(crate) fn switch(
    (kind, key): (ProblemKind, &str),
    annotations: &BTreeMap<ArcStr, ArcStr>,
    default: bool,
) -> Result<bool, Problem> {
    match annotations.get(key).map(ArcStr::as_str) {
        None => Ok(default),
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(value) => Err(Problem::annotation(kind, key, value, "it must be true or false; it is ignored")),
    }
}

/// The maximum number of entries of an annotation that are kept, and of invalid ones after which it isn't read further. An
/// annotation has space for 8,000, an entry takes fifty times its bytes in a template, and a change of a template
/// evaluates all groups that have it.
const MOST_ENTRIES: usize = 100;

/// Parses the entries of an annotation that holds a list, separated by commas. An invalid one is a problem, and affects no
/// other. Space around an entry and empty entries are ignored. `items` names what the entries are.
pub(crate) fn parse_list<T, E: fmt::Display>(
    (kind, annotation, items): (ProblemKind, &str, &str),
    text: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> (Vec<T>, Vec<Problem>) {
    let (mut valid, mut problems) = (Vec::new(), Vec::new());
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let end = match parse(entry) {
            Ok(value) if valid.len() < MOST_ENTRIES => {
                valid.push(value);
                continue;
            }
            Ok(_) => format!("only the first {MOST_ENTRIES} {items} are read"),
            Err(rule) if problems.len() < MOST_ENTRIES => {
                problems.push(Problem::annotation_entry(kind, annotation, entry, &format!("{rule}; it is ignored")));
                continue;
            }
            Err(_) => format!("{MOST_ENTRIES} entries before it are invalid"),
        };
        // Before the others: of many problems the first are shown.
        let rule = format!("{end}; this one and all after it are ignored");
        problems.insert(0, Problem::annotation_entry(kind, annotation, entry, &rule));
        break;
    }
    (valid, problems)
}

/// The maximum number of problems of one object that are reported.
const MOST_PROBLEMS: usize = 20;

/// Keeps the first problems and counts the others: one annotation can hold thousands of invalid entries.
pub(super) fn keep_first(problems: &mut Vec<Problem>) {
    if let Some(kind) = problems.get(MOST_PROBLEMS).map(|problem| problem.kind) {
        let others = problems.len() - MOST_PROBLEMS;
        problems.truncate(MOST_PROBLEMS);
        problems.push(Problem::new(kind, format!("and {others} more problems; correct the first ones to see them")));
        problems.shrink_to_fit();
    }
}

/// A text of an object, quoted and cut: an annotation may hold many KiB.
pub(super) struct Clipped<'a>(pub(super) &'a str);

impl Clipped<'_> {
    /// The maximum number of characters that are shown.
    const LONGEST: usize = 120;
}

impl fmt::Debug for Clipped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(Self::LONGEST) {
            Some((end, _)) => write!(f, "{:?} (cut)", self.0.get(..end).unwrap_or_default()),
            None => fmt::Debug::fmt(self.0, f),
        }
    }
}

/// Cuts a text of an object if it is too long to be shown.
pub(super) fn cut(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(Clipped::LONGEST) {
        Some((end, _)) => format!("{} (cut)", text.get(..end).unwrap_or_default()).into(),
        None => text.into(),
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use crate::capi::CAPACITY_PREFIX;
    use rstest::rstest;

    use super::*;
    use crate::{drivers::drivers, labels, resource_list, taints};

    fn drivers_of(text: &str) -> (usize, Vec<Problem>) {
        let key = format!("{CAPACITY_PREFIX}csi-driver");
        let (drivers, problems) = drivers(&BTreeMap::from([(key.into(), text.into())]));
        (drivers.len(), problems)
    }

    fn counted<T>((valid, problems): (T, Vec<Problem>), count: fn(&T) -> usize) -> (usize, Vec<Problem>) {
        (count(&valid), problems)
    }

    /// Each parser returns the number of valid entries, and the problems.
    #[rstest]
    #[case::labels("=", |text: &str| counted(labels::parse("key", text), BTreeMap::len))]
    #[case::taints(":NoExecute", |text: &str| counted(taints::parse("key", text), Vec::len))]
    #[case::resources("=1", |text: &str| counted(resource_list::parse("key", text, |_, _| Ok(())), BTreeMap::len))]
    #[case::drivers("=1", drivers_of)]
    fn of_an_annotation_100_entries_are_kept_and_100_problems(
        #[case] ending: &str,
        #[case] parse: fn(&str) -> (usize, Vec<Problem>),
    ) {
        let text = |count: usize| (0..count).map(|number| format!("a{number}{ending}")).collect::<Vec<_>>().join(",");
        assert_eq!(parse(&text(MOST_ENTRIES)), (MOST_ENTRIES, Vec::new()));
        let (kept, problems) = parse(&text(8_000));
        assert_eq!((kept, problems.len()), (MOST_ENTRIES, 1));
        let expected = format!("\"a100{ending}\": only the first 100 ");
        assert!(problems[0].message.contains(&expected), "{}", problems[0]);

        assert_eq!(parse(&"?,".repeat(MOST_ENTRIES)).1.len(), MOST_ENTRIES);
        let (_, problems) = parse(&"?,".repeat(8_000));
        assert_eq!(problems.len(), MOST_ENTRIES + 1);
        let first = &problems[0].message;
        assert!(first.contains("100 entries before it are invalid; this one and all after it are ignored"), "{first}");
    }
}
