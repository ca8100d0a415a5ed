//! Taints of the Node that would join: those of the group's template and those of the taints annotation
//! (kubernetes/autoscaler#9239).

use std::{collections::BTreeSet, fmt, str::FromStr};

use crate::capi::{MachineTaint, Propagation};

use super::{
    Problem, ProblemKind, labels, named_enum,
    problem::{cut, parse_list},
};

/// The suffix of the capacity annotation that holds taints.
pub const TAINTS: &str = "taints";

/// A taint of a Node.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value, often empty.
    pub value: String,
    /// Its effect.
    pub effect: TaintEffect,
}

named_enum! {
    /// The effect of a taint on pods that don't tolerate it, as the API spells it.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub enum TaintEffect {
        /// New pods aren't scheduled.
        NoSchedule = "NoSchedule",
        /// New pods are scheduled elsewhere if possible.
        PreferNoSchedule = "PreferNoSchedule",
        /// Running pods are evicted.
        NoExecute = "NoExecute",
    }
}

impl fmt::Display for TaintEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for TaintEffect {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        Self::ALL
            .into_iter()
            .find(|effect| effect.as_str() == text)
            .ok_or("the effect must be NoSchedule, PreferNoSchedule or NoExecute, spelled so")
    }
}

/// Writes `key=value:Effect`, or `key:Effect` without a value.
impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equals = if self.value.is_empty() { "" } else { "=" };
        write!(f, "{}{equals}{}:{}", self.key, self.value, self.effect)
    }
}

impl FromStr for Taint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (pair, effect) = text.split_once(':').ok_or("a taint is written key=value:Effect or key:Effect")?;
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Self::new(key, value, effect)
    }
}

impl Taint {
    fn new(key: &str, value: &str, effect: &str) -> Result<Self, &'static str> {
        labels::check_key(key)?;
        labels::check_value(value)?;
        Ok(Self { key: key.to_owned(), value: value.to_owned(), effect: effect.parse()? })
    }

    /// Returns true if a Node can't have both, because key and effect are the same.
    pub fn replaces(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

/// Parses the taints of an annotation `key=value:Effect,…`. The last of those with the same key and effect counts; an
/// invalid entry is a problem.
pub fn parse(annotation: &str, text: &str) -> (Vec<Taint>, Vec<Problem>) {
    let (found, problems) = parse_list((ProblemKind::Taints, annotation, "taints"), text, Taint::from_str);
    let mut taints = Vec::new();
    for taint in found {
        put(&mut taints, taint);
    }
    (taints, problems)
}

fn put(taints: &mut Vec<Taint>, taint: Taint) {
    match taints.iter_mut().find(|other| taint.replaces(other)) {
        Some(other) => *other = taint,
        None => taints.push(taint),
    }
}

/// Returns the taints of a template's spec, and a problem for every one that is invalid. A Node that joins has those
/// of either propagation.
pub(super) fn of_template(spec: &[MachineTaint]) -> (Vec<Taint>, Vec<Problem>) {
    let mut taints = Vec::new();
    let mut problems = Vec::new();
    for MachineTaint { key, value, effect, .. } in spec {
        match Taint::new(key, value, effect) {
            Ok(taint) => put(&mut taints, taint),
            Err(rule) => problems.push(Problem::new(
                ProblemKind::Taints,
                format!(
                    "spec.template.spec.taints, {}: {rule}; this taint is ignored",
                    cut(&format!("{key}={value}:{effect}"))
                ),
            )),
        }
    }
    (taints, problems)
}

/// Returns a note on the taints of a template that a Node has only until something removes them (propagation
/// `OnInitialization`): Cluster Autoscaler takes them for lasting, unless it is told.
pub(super) fn note_of_initialization(spec: &[MachineTaint]) -> Option<String> {
    let keeps_pods_off = |taint: &&MachineTaint| {
        let effect = taint.effect.parse();
        taint.propagation == Propagation::OnInitialization
            && matches!(effect, Ok(TaintEffect::NoSchedule | TaintEffect::NoExecute))
    };
    let keys: BTreeSet<_> = spec.iter().filter(keeps_pods_off).map(|taint| cut(&taint.key)).collect();
    if keys.is_empty() {
        return None;
    }
    let flags: Vec<_> = keys.iter().take(MOST_NOTED).map(|key| format!("--startup-taint={key}")).collect();
    let more = if keys.len() > MOST_NOTED { ", and so on" } else { "" };
    Some(format!(
        "spec.template.spec.taints has taints of the propagation OnInitialization: they keep all pods off a new Node that don't \
         tolerate them, and the group doesn't grow for such pods, unless Cluster Autoscaler has {}{more}",
        flags.join(" "),
    ))
}

/// The maximum number of taints that a note names.
const MOST_NOTED: usize = 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::testing::assert_names;

    #[rstest]
    #[case::one("a=b:NoSchedule", &["a=b:NoSchedule"])]
    #[case::without_a_value("a:NoExecute", &["a:NoExecute"])]
    #[case::an_empty_value("a=:NoExecute", &["a:NoExecute"])]
    #[case::in_order("b:NoExecute,example.com/a=1:PreferNoSchedule", &["b:NoExecute", "example.com/a=1:PreferNoSchedule"])]
    #[case::the_last_of_a_key_and_effect("a=1:NoSchedule,a=2:NoSchedule", &["a=2:NoSchedule"])]
    #[case::two_effects_of_a_key("a=1:NoSchedule,a=1:NoExecute", &["a=1:NoSchedule", "a=1:NoExecute"])]
    #[case::nothing("", &[])]
    fn taints_are_read(#[case] text: &str, #[case] expected: &[&str]) {
        let (taints, problems) = parse("key", text);
        assert_eq!(taints.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
        assert_eq!(problems, []);
    }

    #[rstest]
    #[case::no_effect("a=b", "written key=value:Effect")]
    #[case::an_empty_effect("a=b:", "the effect must be")]
    #[case::an_unknown_effect("a=b:NoSchedul", "the effect must be")]
    #[case::an_effect_in_lower_case("a=b:noschedule", "the effect must be")]
    #[case::two_colons("a:b:NoSchedule", "the effect must be")]
    #[case::no_key("=b:NoSchedule", "the name in a key")]
    #[case::a_bad_key("a b:NoSchedule", "the name in a key")]
    #[case::a_bad_value("a=b=c:NoSchedule", "a value must be")]
    fn a_bad_entry_is_dropped_alone_and_named(#[case] entry: &str, #[case] rule: &str) {
        let (taints, problems) = parse("example.com/taints", &format!("x:NoExecute,{entry},y:NoExecute"));
        assert_eq!(taints.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>(), ["x", "y"]);
        assert_names(&problems, ProblemKind::Taints, &["example.com/taints", &format!("{entry:?}"), rule, "ignored"]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _ = parse("key", &text);
        }

        #[test]
        fn a_taint_is_read_as_it_is_printed(key in "[a-z]{1,9}", value in "[a-z0-9]{0,9}", effect in 0..3_usize) {
            let taint = Taint { key, value, effect: TaintEffect::ALL[effect] };
            prop_assert_eq!(taint.to_string().parse(), Ok(taint));
        }
    }
}
