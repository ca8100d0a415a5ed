//! The outcome of a world as it is passed between processes, and the search for a shorter history.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{Decision, Report};

/// The outcome of a world, without its trace.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The hash of the trace, in hexadecimal digits.
    pub hash: String,
    /// The number of calls that were answered.
    pub calls: u64,
    /// The number of answered calls that were commands.
    pub commands: u64,
    /// The number of requests that reached the API.
    pub requests: u64,
    /// The rules that were broken, each as `Rule at N ms: …`.
    pub findings: Vec<String>,
    /// The number of unpreventable events, by their cause.
    pub exceptions: BTreeMap<String, u64>,
    /// The faults that struck, and the acts of all actors.
    pub struck: Vec<Decision>,
}

impl Outcome {
    /// Returns the outcome of a report.
    pub fn of(seed: u64, report: &Report) -> Self {
        Self {
            seed,
            hash: format!("{:016x}", report.hash),
            calls: report.calls,
            commands: report.commands,
            requests: report.requests,
            findings: report.findings.iter().map(ToString::to_string).collect(),
            exceptions: report.exceptions.iter().map(|(cause, count)| ((*cause).to_owned(), *count)).collect(),
            struck: report.struck.clone(),
        }
    }

    /// Returns the first rule that was broken.
    pub fn rule(&self) -> Option<&str> {
        self.findings.first()?.split(' ').next()
    }

    /// Returns the time at which it was broken, in virtual milliseconds.
    fn at(&self) -> Option<u64> {
        self.findings.first()?.split(' ').nth(2)?.parse().ok()
    }

    /// Returns true if this outcome breaks the same rule as another, and no later: a shortened history may run on to a
    /// later break of the same rule.
    pub fn ends_like(&self, other: &Self) -> bool {
        self.rule().is_some() && self.rule() == other.rule() && self.at() <= other.at()
    }

    /// Returns the number of faults that struck.
    pub fn faults(&self) -> usize {
        self.struck.iter().filter(|decision| decision.is_fault()).count()
    }

    /// Returns the outcome as a line of JSON.
    pub fn to_json(&self) -> String {
        json!({
            "seed": self.seed, "hash": self.hash, "calls": self.calls, "commands": self.commands, "requests": self.requests,
            "findings": self.findings, "exceptions": self.exceptions,
            "struck": self.struck.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
        .to_string()
    }

    /// Parses the output of [`Outcome::to_json`].
    ///
    /// # Errors
    /// Fails if the text is something else.
    pub fn from_json(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text).context("no outcome of a world")?;
        let texts = |field: &str| -> Vec<String> {
            value[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let number = |field: &str| value[field].as_u64().with_context(|| format!("{field} is missing"));
        let exceptions = value["exceptions"].as_object().into_iter().flatten();
        Ok(Self {
            seed: number("seed")?,
            hash: value["hash"].as_str().unwrap_or_default().to_owned(),
            calls: number("calls")?,
            commands: number("commands")?,
            requests: number("requests")?,
            findings: texts("findings"),
            exceptions: exceptions.map(|(cause, count)| (cause.clone(), count.as_u64().unwrap_or_default())).collect(),
            struck: texts("struck").iter().map(|text| text.parse()).collect::<Result<_>>()?,
        })
    }
}

/// Returns the smallest part of `all` found that still fails: leaves out ever smaller parts, each once per sweep, and
/// at last single items until none can be left out.
///
/// # Errors
/// Returns the errors of `fails`.
pub fn shrink<T: Clone>(all: &[T], mut fails: impl FnMut(&[T]) -> Result<bool>) -> Result<Vec<T>> {
    if fails(&[])? {
        return Ok(Vec::new());
    }
    let mut kept = all.to_vec();
    let mut size = kept.len().div_ceil(2);
    while size > 0 && kept.len() > 1 {
        let (before, mut start) = (kept.len(), 0);
        while start < kept.len() && kept.len() > 1 {
            let end = (start + size).min(kept.len());
            let rest: Vec<T> = [&kept[..start], &kept[end..]].concat();
            if fails(&rest)? {
                kept = rest;
            } else {
                start = end;
            }
        }
        let is_smallest = size == 1 && kept.len() == before;
        size = if is_smallest { 0 } else { size.div_ceil(2).min(kept.len()) };
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_story_is_found() {
        let all: Vec<u32> = (0..100).collect();
        let kept = shrink(&all, |kept| Ok(kept.contains(&17) && kept.contains(&83))).unwrap_or_default();
        assert_eq!(kept, [17, 83]);
    }

    #[test]
    fn the_number_of_runs_grows_with_the_number_of_faults_that_stay() {
        let (all, mut runs): (Vec<u32>, _) = ((0..400).collect(), 0);
        let kept = shrink(&all, |kept| {
            runs += 1;
            Ok([17, 83, 311].iter().all(|it| kept.contains(it)))
        });
        assert_eq!(kept.unwrap_or_default(), [17, 83, 311]);
        assert!(runs < 100, "{runs} runs");
    }

    #[test]
    fn a_story_that_fails_without_faults_shrinks_to_no_faults() {
        assert_eq!(shrink(&[1, 2, 3], |_| Ok(true)).unwrap_or_default(), Vec::<i32>::new());
    }

    #[test]
    fn an_outcome_is_read_as_it_was_written() {
        let outcome = Outcome {
            seed: 7,
            hash: "00ff".to_owned(),
            calls: 3,
            commands: 2,
            requests: 4,
            findings: vec!["Rest at 5 ms: left".to_owned()],
            exceptions: BTreeMap::from([("a cause".to_owned(), 2)]),
            struck: vec![Decision { what: "kill", actor: 1, ordinal: 2 }],
        };
        assert_eq!(Outcome::from_json(&outcome.to_json()).ok(), Some(outcome.clone()));
        assert_eq!(outcome.rule(), Some("Rest"));
    }

    #[test]
    fn a_story_is_no_shorter_for_ending_later_or_otherwise() {
        let outcome = |finding: &str| Outcome { findings: vec![finding.to_owned()], ..Outcome::default() };
        let found = outcome("Bounds at 9000 ms: above max");
        for (finding, expected) in [
            ("Bounds at 9000 ms: above max", true),
            ("Bounds at 800 ms: above max", true),
            ("Bounds at 10000 ms: above max", false),
            ("Rest at 800 ms: left", false),
        ] {
            assert_eq!(outcome(finding).ends_like(&found), expected, "{finding}");
        }
        assert!(!Outcome::default().ends_like(&found) && !Outcome::default().ends_like(&Outcome::default()));
    }
}
