//! Label selectors in the syntax of `kubectl`, validated before any request to an API server.

use std::{collections::BTreeMap, fmt, str::FromStr};

use kube_core::{Expression, Selector, SelectorExt as _};
use serde_json::Value;
use thiserror::Error;

use crate::labels::{check_key, check_value};

/// A label selector.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelSelector {
    text: String,
    selector: Selector,
}

/// The reason why a text is no label selector.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum LabelSelectorError {
    /// The text is no requirement on labels.
    #[error("{0:?} is none of key, !key, key=value, key!=value, key in (a,b) and key notin (a,b)")]
    Requirement(String),
    /// The text is no label key.
    #[error("{0:?} is no label key, such as app or example.com/app")]
    Key(String),
    /// The text is no label value.
    #[error(
        "{0:?} is no label value: at most 63 letters, digits, -, _ and ., beginning and ending with one of the former"
    )]
    Value(String),
}

impl LabelSelector {
    /// Returns true if an object's labels match.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = object["metadata"]["labels"].as_object();
        let labels: BTreeMap<String, String> = labels
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect();
        self.selects(&labels)
    }

    /// Returns true if these labels match.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches(labels)
    }

    /// Returns the selector itself, for labels that belong to no object.
    pub fn into_selector(self) -> Selector {
        self.selector
    }
}

impl FromStr for LabelSelector {
    type Err = LabelSelectorError;

    fn from_str(text: &str) -> Result<Self, LabelSelectorError> {
        let expressions: Vec<_> = requirements(text).into_iter().map(expression).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), selector: expressions.into_iter().collect() })
    }
}

/// Splits at the commas outside of parentheses.
fn requirements(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .collect()
}

fn expression(text: &str) -> Result<Expression, LabelSelectorError> {
    let wrong = || LabelSelectorError::Requirement(text.to_owned());
    if let Some(absent) = text.strip_prefix('!') {
        return Ok(Expression::DoesNotExist(key(absent)?));
    }
    if let Some((left, list)) = text.split_once('(') {
        let list = list.strip_suffix(')').ok_or_else(wrong)?;
        let values = list.split(',').map(value).collect::<Result<_, _>>()?;
        return match left.split_whitespace().collect::<Vec<_>>()[..] {
            [name, "in"] => Ok(Expression::In(key(name)?, values)),
            [name, "notin"] => Ok(Expression::NotIn(key(name)?, values)),
            _ => Err(wrong()),
        };
    }
    if let Some((left, right)) = text.split_once("!=") {
        return Ok(Expression::NotEqual(key(left)?, value(right)?));
    }
    if let Some((left, right)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(Expression::Equal(key(left)?, value(right)?));
    }
    match text {
        "" => Err(wrong()),
        _ if text.contains(char::is_whitespace) => Err(wrong()),
        _ => Ok(Expression::Exists(key(text)?)),
    }
}

fn key(text: &str) -> Result<String, LabelSelectorError> {
    let text = text.trim();
    check_key(text).map(|()| text.to_owned()).map_err(|_| LabelSelectorError::Key(text.to_owned()))
}

fn value(text: &str) -> Result<String, LabelSelectorError> {
    let text = text.trim();
    check_value(text).map(|()| text.to_owned()).map_err(|_| LabelSelectorError::Value(text.to_owned()))
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::equal("app=web", true)]
    #[case::equal_twice("app==web", true)]
    #[case::other("app=db", false)]
    #[case::not("app!=db", true)]
    #[case::not_of_an_absent_key("zone!=a", true)]
    #[case::exists("app", true)]
    #[case::absent("!app", false)]
    #[case::within("app in (db, web)", true)]
    #[case::without("app notin (db,web)", false)]
    #[case::both("app=web,example.io/tier in (a),!zone", true)]
    #[case::one_fails("app=web,zone", false)]
    #[case::empty_value("note=", true)]
    #[case::spaces(" app = web , !zone ", true)]
    fn labels_match(#[case] selector: &str, #[case] matches: bool) {
        let object = json!({"metadata": {"labels": {"app": "web", "example.io/tier": "a", "note": ""}}});
        assert_eq!(selector.parse::<LabelSelector>().unwrap().matches(&object), matches);
    }

    #[rstest]
    #[case::empty("")]
    #[case::comma("app=web,")]
    #[case::key("a b")]
    #[case::odd_key("-a=b")]
    #[case::prefix("A.b/c=d")]
    #[case::value("app=a b")]
    #[case::odd_value("app=-")]
    #[case::open("app in (a")]
    #[case::operator("app is (a)")]
    #[case::greater("cpu > 3")]
    fn an_invalid_label_selector_is_refused(#[case] selector: &str) {
        assert!(selector.parse::<LabelSelector>().is_err());
    }
}
