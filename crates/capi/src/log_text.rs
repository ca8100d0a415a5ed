//! The text of the deletion log annotation, as stored on an object. A text longer than the maximum is never kept. The
//! memory of the kept texts is limited per namespace and in total: otherwise anybody who may annotate objects could
//! exhaust the memory.

use std::{collections::HashMap, ops::Deref, sync::Arc};

use arcstr::ArcStr;
use parking_lot::Mutex;

/// The maximum length of a log, in bytes. Kubernetes limits all annotations of an object to 256 KiB in total, and other
/// annotations need space too.
pub const LONGEST_LOG: usize = 160 * 1024;
/// The maximum memory of one namespace's logs, as an estimate in bytes.
pub const MOST_LOGS_OF_NAMESPACE: usize = 8 << 20;
/// The maximum memory of all namespaces' logs, as an estimate in bytes.
pub const MOST_LOGS: usize = 32 << 20;
/// The memory that a namespace's logs may take after other namespaces have used up [`MOST_LOGS`]. It fits the old and
/// the new log of 500 Machines.
const LOGS_IN_ANY_CASE: usize = 256 << 10;
/// The maximum memory of all namespaces' logs, including the memory granted by [`LOGS_IN_ANY_CASE`].
const MOST_LOGS_IN_ANY_CASE: usize = 2 * MOST_LOGS;
/// The estimated memory for each quotation mark of the text. The entry of a Machine has at least four quotation marks.
/// Its parsed form takes memory even if the name is short.
const QUOTE: usize = 40;

/// The value of the annotation [`super::DELETING`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LogText {
    /// The text, within all limits.
    Whole(BudgetedLog),
    /// The length in bytes of a text longer than [`LONGEST_LOG`].
    TooLong(usize),
    /// The length in bytes of a text for which [`LogBudget`] had no space left.
    OverBudget(usize),
}

/// Creates a value that counts against no budget, for a text that this process writes.
impl From<&str> for LogText {
    fn from(text: &str) -> Self {
        if text.len() > LONGEST_LOG {
            Self::TooLong(text.len())
        } else {
            Self::Whole(BudgetedLog(Arc::new(Reservation { text: text.into(), of: None })))
        }
    }
}

/// The text of a log, and its reservation in the [`LogBudget`]. A clone is cheap; the drop of the last clone frees the
/// space.
#[derive(Clone)]
pub struct BudgetedLog(Arc<Reservation>);

struct Reservation {
    text: ArcStr,
    /// The budget and the namespace that the text counts against; `None` if it counts against no budget.
    of: Option<(LogBudget, ArcStr)>,
}

impl Deref for BudgetedLog {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.text
    }
}

impl PartialEq for BudgetedLog {
    fn eq(&self, other: &Self) -> bool {
        ArcStr::ptr_eq(&self.0.text, &other.0.text) || self.0.text == other.0.text
    }
}

impl Eq for BudgetedLog {}

impl std::fmt::Debug for BudgetedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.text.fmt(f)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some((budget, namespace)) = &self.of {
            budget.free(namespace, &self.text);
        }
    }
}

/// The space for the logs of a management cluster. A text counts once in its namespace, even if many objects have it:
/// Cluster API copies a MachineDeployment's log to its MachineSets, and each of their updates contains it again.
#[derive(Clone, Debug, Default)]
pub struct LogBudget(Arc<Mutex<Counted>>);

#[derive(Debug, Default)]
struct Counted {
    weight: usize,
    namespaces: HashMap<ArcStr, Namespace>,
}

#[derive(Debug, Default)]
struct Namespace {
    weight: usize,
    /// Each text with the number of its reservations.
    texts: HashMap<ArcStr, usize>,
}

impl LogBudget {
    /// Returns the value of an object's annotation, with space reserved for it.
    pub(super) fn reserve(&self, namespace: &ArcStr, text: &str) -> LogText {
        if text.len() > LONGEST_LOG {
            return LogText::TooLong(text.len());
        }
        let mut counted = self.0.lock();
        let Counted { weight: in_all, namespaces } = &mut *counted;
        let of_namespace = namespaces.entry(namespace.clone()).or_default();
        let text = if let Some((known, _)) = of_namespace.texts.get_key_value(text) {
            known.clone()
        } else {
            let weight = weight(text);
            let (of_this, of_all) = (of_namespace.weight + weight, *in_all + weight);
            let most = if of_this <= LOGS_IN_ANY_CASE { MOST_LOGS_IN_ANY_CASE } else { MOST_LOGS };
            if of_this > MOST_LOGS_OF_NAMESPACE || of_all > most {
                if of_namespace.texts.is_empty() {
                    namespaces.remove(namespace);
                }
                return LogText::OverBudget(text.len());
            }
            of_namespace.weight += weight;
            *in_all += weight;
            text.into()
        };
        *of_namespace.texts.entry(text.clone()).or_default() += 1;
        drop(counted);
        LogText::Whole(BudgetedLog(Arc::new(Reservation { text, of: Some((self.clone(), namespace.clone())) })))
    }

    fn free(&self, namespace: &ArcStr, text: &ArcStr) {
        let mut counted = self.0.lock();
        let Counted { weight: in_all, namespaces } = &mut *counted;
        let Some(of_namespace) = namespaces.get_mut(namespace) else { return };
        let Some(places) = of_namespace.texts.get_mut(text) else { return };
        *places -= 1;
        if *places == 0 {
            of_namespace.texts.remove(text);
            of_namespace.weight -= weight(text);
            *in_all -= weight(text);
        }
        if of_namespace.texts.is_empty() {
            namespaces.remove(namespace);
        }
    }
}

fn weight(text: &str) -> usize {
    text.len() + QUOTE * memchr::memchr_iter(b'"', text.as_bytes()).count()
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    fn text(number: usize, bytes: usize) -> String {
        let number = number.to_string();
        number.clone() + &"x".repeat(bytes - number.len())
    }

    /// Fills the space of a namespace with texts.
    fn fill(budget: &LogBudget, namespace: &str) -> Vec<LogText> {
        let namespace = ArcStr::from(namespace);
        let texts = (0..).map(|number| budget.reserve(&namespace, &text(number, LONGEST_LOG)));
        texts.take_while(|log| matches!(log, LogText::Whole(_))).take(1_000).collect()
    }

    #[test]
    fn a_namespace_has_a_budget_for_its_logs_and_others_have_theirs() {
        let budget = LogBudget::default();
        let first = fill(&budget, "first");
        assert_eq!(first.len(), MOST_LOGS_OF_NAMESPACE / LONGEST_LOG);
        assert_eq!(budget.reserve(&"first".into(), &text(7_000, LONGEST_LOG)), LogText::OverBudget(LONGEST_LOG));
        assert!(matches!(budget.reserve(&"second".into(), &text(0, LONGEST_LOG)), LogText::Whole(_)));
        let others = ["second", "third", "fourth", "fifth"].map(|namespace| fill(&budget, namespace).len());
        assert_eq!(others, [51, 51, 51, 51], "what isn't held any more gives its bytes back");
        drop(first);
        assert_eq!(fill(&budget, "first").len(), 51);
    }

    #[test]
    fn all_namespaces_together_have_their_bound() {
        let budget = LogBudget::default();
        let held: Vec<_> = (0..9).map(|number| fill(&budget, &number.to_string())).collect();
        let counts: Vec<_> = held.iter().map(Vec::len).collect();
        assert_eq!(counts, [51, 51, 51, 51, 1, 1, 1, 1, 1], "and each of the others what it has in any case");
        drop(held);
        assert!(budget.0.lock().namespaces.is_empty() && budget.0.lock().weight == 0);
    }

    #[test]
    fn a_few_namespaces_take_nothing_from_the_small_logs_of_others() {
        let budget = LogBudget::default();
        let _held: Vec<_> = (0..9).map(|number| fill(&budget, &number.to_string())).collect();
        let small = |namespace: &str, number| budget.reserve(&namespace.into(), &text(number, 32 << 10));
        let logs: Vec<_> = (0..9).map(|number| small("team-a", number)).collect();
        assert!(logs[..8].iter().all(|log| matches!(log, LogText::Whole(_))), "{logs:?}");
        assert_eq!(logs[8], LogText::OverBudget(32 << 10), "beyond its own space it shares that of all");
        let others: Vec<_> = (0..1_000).map(|number| small(&format!("n{number}"), 0)).collect();
        assert!(others.contains(&LogText::OverBudget(32 << 10)));
        assert!(budget.0.lock().weight <= MOST_LOGS_IN_ANY_CASE);
    }

    #[test]
    fn a_text_counts_once_in_its_namespace_until_its_last_place_is_free() {
        let budget = LogBudget::default();
        let namespace = ArcStr::from("team-a");
        let held: Vec<_> = (0..1_000).map(|_| budget.reserve(&namespace, &text(1, LONGEST_LOG))).collect();
        assert!(held.iter().all(|log| matches!(log, LogText::Whole(_))));
        assert_eq!(budget.0.lock().weight, LONGEST_LOG);
        drop(held);
        assert_eq!(budget.0.lock().weight, 0);
    }

    #[test]
    fn a_machine_weighs_what_it_takes_once_the_log_is_read() {
        let machines = |count: usize| (0..count).map(|n| format!(r#""{n}":"0""#)).collect::<Vec<_>>().join(",");
        assert!(weight(&machines(1_000)) >= 1_000 * 160);
    }

    #[test]
    fn a_text_that_is_too_long_takes_no_budget() {
        let budget = LogBudget::default();
        assert_eq!(budget.reserve(&"team-a".into(), &text(1, LONGEST_LOG + 1)), LogText::TooLong(LONGEST_LOG + 1));
        assert!(budget.0.lock().namespaces.is_empty());
    }
}
