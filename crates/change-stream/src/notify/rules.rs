//! The rules file, which decides which changes are sent where. A rule matches if all of its conditions do; an absent
//! condition always does.

use std::{collections::BTreeSet, path::PathBuf};

use serde::Deserialize;

use super::{
    delivery::{UrlSource, is_variable},
    sink::SinkKind,
};
use crate::changes::{Action, Change, FieldSelector, Kind, Pattern};
use rules::LabelSelector;

/// A rule: the changes that it matches, and their destination.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The rule's name in logs.
    pub name: String,
    /// The kinds, in the syntax of `watch`; an empty list matches all.
    pub kinds: Vec<String>,
    /// The namespaces; an empty set matches all.
    pub namespaces: BTreeSet<String>,
    /// The label selector.
    pub labels: Option<LabelSelector>,
    /// The field selector.
    pub fields: Option<FieldSelector>,
    /// The actions that match; an empty list matches all.
    pub actions: Vec<ActionName>,
    /// The paths that must have changed; an empty list matches all. In a new or deleted object, every path has
    /// changed.
    pub paths: Vec<Pattern>,
    /// The destination.
    pub to: Destination,
}

/// A destination of changes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Destination {
    /// The form of the messages.
    pub kind: SinkKind,
    /// The source of its URL.
    pub url: UrlSource,
    /// True if plain http is allowed beyond loopback.
    pub allow_http: bool,
}

/// An action, as rules spell it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum ActionName {
    /// An object is new.
    Added,
    /// An object changed.
    Modified,
    /// An object is gone.
    Deleted,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "rules, a list")]
struct FileForm {
    rules: Vec<RuleForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "a rule with name, to and what it matches")]
struct RuleForm {
    name: String,
    #[serde(default)]
    kinds: Vec<String>,
    #[serde(default)]
    namespaces: BTreeSet<String>,
    labels: Option<String>,
    fields: Option<String>,
    #[serde(default)]
    types: Vec<ActionName>,
    #[serde(default)]
    paths: Vec<String>,
    to: DestinationForm,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", expecting = "form and urlFile or urlVariable")]
struct DestinationForm {
    form: SinkKind,
    url_file: Option<PathBuf>,
    url_variable: Option<String>,
    #[serde(default)]
    allow_http: bool,
}

impl Rule {
    /// Returns a rule that sends all changes to one destination, for a flag.
    pub fn everything(name: &str, to: Destination) -> Self {
        Self {
            name: name.to_owned(),
            kinds: Vec::new(),
            namespaces: BTreeSet::new(),
            labels: None,
            fields: None,
            actions: Vec::new(),
            paths: Vec::new(),
            to,
        }
    }

    /// Returns true if a change must be sent. Objects from before the watch never are.
    pub fn matches(&self, change: &Change) -> bool {
        let action = match change.action {
            Action::Added { initial: true } => return false,
            Action::Added { initial: false } => ActionName::Added,
            Action::Modified => ActionName::Modified,
            Action::Deleted { .. } => ActionName::Deleted,
        };
        let identity = &change.identity;
        let any = |selected: &dyn Fn(&serde_json::Value) -> bool| change.states().any(selected);
        (self.actions.is_empty() || self.actions.contains(&action))
            && (self.kinds.is_empty() || self.kinds.iter().any(|name| names(name, &identity.kind)))
            && (self.namespaces.is_empty() || self.namespaces.contains(&identity.namespace))
            && self.labels.as_ref().is_none_or(|labels| any(&|object| labels.matches(object)))
            && self.fields.as_ref().is_none_or(|fields| any(&|object| fields.matches(object)))
            && (self.paths.is_empty() || action != ActionName::Modified || self.touches(change))
    }

    /// Returns the first of the rule's kinds that is none of these.
    pub(crate) fn unknown_kind(&self, kinds: &[&Kind]) -> Option<&str> {
        let unknown = |name: &&String| !kinds.iter().any(|kind| names(name, kind));
        self.kinds.iter().find(unknown).map(String::as_str)
    }

    fn touches(&self, change: &Change) -> bool {
        let pointers = change.pointers();
        self.paths.iter().any(|path| pointers.iter().any(|pointer| path.touches(pointer)))
    }
}

/// Returns true if a name means this kind: `Machine`, `machines`, and either with its group.
pub(super) fn names(name: &str, kind: &Kind) -> bool {
    let (plain, group) = name.split_once('.').map_or((name, None), |(plain, group)| (plain, Some(group)));
    (plain.eq_ignore_ascii_case(&kind.plural) || plain.eq_ignore_ascii_case(&kind.kind))
        && group.is_none_or(|group| group == kind.group)
}

/// Parses a rules file. It doesn't check that the URLs are usable.
///
/// # Errors
/// When it isn't of the form that `docs/reference/watch.md` describes. No text quotes a value of the file, which might be
/// a URL.
pub fn parse_rules(text: &str) -> Result<Vec<Rule>, String> {
    let file: FileForm = serde_yaml::from_str(text).map_err(|error| {
        let place = error.location().map(|at| format!(" (line {}, column {})", at.line(), at.column()));
        format!("not a rules file{}: {}", place.unwrap_or_default(), without_values(&error.to_string()))
    })?;
    if file.rules.is_empty() {
        return Err("it has no rules".to_owned());
    }
    let rules: Vec<_> = file.rules.into_iter().map(rule).collect::<Result<_, _>>()?;
    let mut names = BTreeSet::new();
    match rules.iter().find(|rule| !names.insert(rule.name.as_str())) {
        Some(twice) => Err(wrong(&twice.name, "name", &"another rule has it too, and the log names rules by it")),
        None => Ok(rules),
    }
}

/// Returns the parser's message without the texts in double quotes, which are values of the file.
fn without_values(message: &str) -> String {
    let (mut shown, mut quoted, mut escaped) = (String::new(), false, false);
    for c in message.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => {
                shown.push_str(if quoted { "…\"" } else { "\"" });
                quoted = !quoted;
            }
            _ if quoted => {}
            c => shown.push(c),
        }
    }
    without_urls(shown)
}

fn without_urls(text: String) -> String {
    if text.contains("://") { "a URL stands where none belongs".to_owned() } else { text }
}

fn wrong(rule: &str, field: &str, reason: &dyn ToString) -> String {
    let rule = if rule.contains("://") { "…" } else { rule };
    format!("rule {rule:?}: {field}: {}", without_urls(reason.to_string()))
}

fn rule(form: RuleForm) -> Result<Rule, String> {
    let name = form.name;
    if name.trim().is_empty() || name.contains("://") {
        return Err(wrong(&name, "name", &"give it a name, by which the log shows the rule"));
    }
    // Later errors quote a kind or namespace that isn't watched, and must not quote a URL.
    for (field, text) in
        form.kinds.iter().map(|kind| ("kinds", kind)).chain(form.namespaces.iter().map(|name| ("namespaces", name)))
    {
        if text.contains("://") {
            return Err(wrong(&name, field, text));
        }
    }
    let selector = |field, text: Option<String>| -> Result<Option<LabelSelector>, String> {
        text.map(|text| text.parse().map_err(|error| wrong(&name, field, &error))).transpose()
    };
    let paths = form.paths.iter().map(|path| path.parse().map_err(|error| wrong(&name, "paths", &error)));
    Ok(Rule {
        labels: selector("labels", form.labels)?,
        fields: form.fields.map(|text| text.parse().map_err(|error| wrong(&name, "fields", &error))).transpose()?,
        paths: paths.collect::<Result<_, _>>()?,
        to: destination(&name, form.to)?,
        kinds: form.kinds,
        namespaces: form.namespaces,
        actions: form.types,
        name,
    })
}

fn destination(rule: &str, form: DestinationForm) -> Result<Destination, String> {
    let url = match (form.url_file, form.url_variable) {
        (Some(path), None) if !path.to_string_lossy().contains("://") => UrlSource::File(path),
        (None, Some(name)) if is_variable(&name) => UrlSource::Variable(name),
        (Some(_), None) | (None, Some(_)) => {
            return Err(wrong(
                rule,
                "to",
                &"urlFile is the path of a file and urlVariable the name of an environment \
                                          variable; neither is the URL itself",
            ));
        }
        _ => return Err(wrong(rule, "to", &"give one of urlFile and urlVariable")),
    };
    Ok(Destination { kind: form.form, url, allow_http: form.allow_http })
}
