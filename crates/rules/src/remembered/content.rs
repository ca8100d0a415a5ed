//! The content of the ConfigMap that holds the entries: its form, its bounds, and the changes of a write. Anybody who may
//! write it may put anything there, and an entry that is wrong must never change another.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arcstr::ArcStr;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Entry, Key, MOST_GROUPS, Minor, Offers, Seen, Several, Templates};
use crate::{
    Amounts, GroupId,
    capi::LONGEST_VALUE,
    labels::{self, ARCH},
    problem::cut,
    resource_list::{CPU, MEMORY, quantity},
    template::HOSTNAME,
};

/// The maximum number of entries.
pub const MOST_ENTRIES: usize = 500;
/// The maximum bytes of all keys and values together: an API server takes no object of more than 1 MiB.
pub const MOST_BYTES: usize = 700 << 10;
/// The maximum bytes of an entry.
pub const LONGEST_ENTRY: usize = 8 << 10;
/// The maximum number of entries that are reported as set aside.
const MOST_REPORTED: usize = 10;

/// The entries of a ConfigMap.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Content {
    /// The valid ones.
    pub entries: BTreeMap<Key, Arc<Entry>>,
    /// The others.
    pub set_aside: Vec<SetAside>,
}

/// An entry that isn't used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SetAside {
    /// Its key in the ConfigMap.
    pub key: String,
    /// The bytes that it takes there.
    bytes: usize,
    /// The reason.
    pub why: String,
}

impl SetAside {
    /// Returns the reasons for the first of them, for people.
    pub fn shown(all: &[Self]) -> impl Iterator<Item = String> {
        all.iter().take(MOST_REPORTED).map(|Self { key, why, .. }| format!("{:?}: {why}", cut(key)))
    }
}

impl Content {
    /// Reads the data of a ConfigMap. With a namespace, only entries for groups there count.
    pub fn parse<'a>(
        data: impl IntoIterator<Item = (&'a str, &'a str)>,
        namespace: Option<&str>,
        now: Timestamp,
    ) -> Self {
        let mut content = Self::default();
        for (name, value) in data {
            let entry = parse(name, value, namespace, now).and_then(|found| {
                let is_full = content.entries.len() >= MOST_ENTRIES;
                if is_full { Err(format!("there are more than {MOST_ENTRIES} entries")) } else { Ok(found) }
            });
            match entry {
                Ok((key, entry)) => {
                    content.entries.insert(key, Arc::new(entry));
                }
                Err(why) => {
                    content.set_aside.push(SetAside { key: name.to_owned(), bytes: name.len() + value.len(), why });
                }
            }
        }
        content
    }
}

fn parse(name: &str, value: &str, namespace: Option<&str>, now: Timestamp) -> Result<(Key, Entry), String> {
    let key = Key::parse(name).ok_or("its key isn't namespace.architecture.digest")?;
    if namespace.is_some_and(|only| only != key.templates.namespace) {
        return Err("it is for another namespace than that of the ConfigMap".to_owned());
    }
    if value.len() > LONGEST_ENTRY {
        return Err(format!("it is longer than {LONGEST_ENTRY} bytes"));
    }
    let stored: Stored = serde_json::from_str(value).map_err(|error| cut(&error.to_string()).into_owned())?;
    let mut entry = stored.read()?;
    // One of the future would be the last of all to go.
    entry.seen.at = entry.seen.at.min(now);
    if entry.seen.group.key.namespace != key.templates.namespace {
        return Err("its group is in another namespace".to_owned());
    }
    Ok((key, entry))
}

/// An entry as it is stored. Fields of a later version are ignored.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    node: String,
    group: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    cluster: String,
    seen: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kubernetes: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    settled: bool,
    /// All groups, if they are others than `group`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    several_failure_domains: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure_domain: Option<String>,
    capacity: BTreeMap<String, String>,
    allocatable: BTreeMap<String, String>,
    /// `null` is the value of a label on which Nodes differ.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, Option<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    declared_features: Vec<String>,
    #[serde(default, skip_serializing_if = "Offers::is_empty")]
    offers: Offers,
}

/// Returns an entry as it is stored.
pub(super) fn print(entry: &Entry) -> String {
    let Entry { seen, resources, labels, declared_features, offers, version, settled, groups, failure_domain } = entry;
    let amounts = |of: fn(&Amounts) -> String| {
        resources.iter().map(|(name, amounts)| (name.to_string(), of(amounts))).collect::<BTreeMap<_, _>>()
    };
    let stored = Stored {
        node: seen.node.to_string(),
        group: seen.group.to_string(),
        cluster: seen.cluster.to_string(),
        seen: seen.at,
        kubernetes: version.map(|version| version.to_string()),
        settled: *settled,
        groups: if groups.iter().eq([&seen.group]) {
            Vec::new()
        } else {
            groups.iter().map(ToString::to_string).collect()
        },
        several_failure_domains: failure_domain.is_err(),
        failure_domain: failure_domain.as_ref().ok().and_then(Option::as_ref).map(ToString::to_string),
        capacity: amounts(|amounts| amounts.capacity.to_string()),
        allocatable: amounts(|amounts| amounts.allocatable.to_string()),
        labels: labels.iter().map(|(key, value)| (key.to_string(), value.as_ref().map(ToString::to_string))).collect(),
        declared_features: declared_features.clone(),
        offers: offers.clone(),
    };
    // Maps with text keys, numbers and texts are always written.
    serde_json::to_string(&stored).unwrap_or_default()
}

/// Returns true if an entry can be stored.
pub fn fits(entry: &Entry) -> bool {
    bounded(entry).is_some()
}

/// Returns an entry as it is stored, without what would make it too long: what is alike in devices, then labels. `None` if
/// it is too long even so.
fn bounded(entry: &Entry) -> Option<(Arc<Entry>, String)> {
    let fits = |entry: Entry| {
        let text = print(&entry);
        (text.len() <= LONGEST_ENTRY).then(|| (Arc::new(entry), text))
    };
    let short = || entry.clone().without_alike();
    fits(entry.clone())
        .or_else(|| fits(short()))
        .or_else(|| fits(short().without_labels(true)))
        .or_else(|| fits(short().without_labels(false)))
}

impl Stored {
    fn read(self) -> Result<Entry, String> {
        let is_name = |text: &str| (1..=253).contains(&text.len()) && !text.contains(char::is_control);
        if !is_name(&self.node) || (!self.cluster.is_empty() && !is_name(&self.cluster)) {
            return Err("node and cluster must be names".to_owned());
        }
        let id = |text: &String| GroupId::parse(text).ok_or("a group must be such as MachineDeployment/namespace/name");
        let group = id(&self.group)?;
        let groups = if self.groups.is_empty() { vec![&self.group] } else { self.groups.iter().collect() };
        let groups = groups.into_iter().take(MOST_GROUPS).map(id).collect::<Result<_, _>>()?;
        let mut resources = BTreeMap::new();
        for (name, capacity) in &self.capacity {
            let allocatable = self.allocatable.get(name).ok_or_else(|| format!("allocatable lacks {:?}", cut(name)))?;
            resources.insert(ArcStr::from(name.as_str()), amounts(name, capacity, allocatable)?);
        }
        let has = |name: &str| resources.get(name).is_some_and(|amounts: &Amounts| !amounts.allocatable.is_zero());
        if !has(CPU) || !has(MEMORY) {
            return Err("it must have cpu and memory".to_owned());
        }
        if !self.offers.is_valid() {
            return Err("offers must have names of drivers, and numbers of volumes and devices".to_owned());
        }
        let labels = self.labels.into_iter().map(|(key, value)| {
            let is_valid = labels::check_key(&key).and(labels::check_value(value.as_deref().unwrap_or_default()));
            is_valid.map_err(|rule| format!("label {:?}: {rule}", cut(&key)))?;
            if [ARCH, HOSTNAME].contains(&key.as_str()) {
                return Err(format!("label {key}: it isn't one that is remembered"));
            }
            Ok((key.into(), value.map(Into::into)))
        });
        Ok(Entry {
            seen: Seen { at: self.seen, node: self.node.into(), group, cluster: self.cluster.into() },
            resources,
            labels: labels.collect::<Result<_, String>>()?,
            declared_features: self.declared_features.into_iter().filter(|feature| is_name(feature)).collect(),
            offers: self.offers,
            version: self.kubernetes.as_deref().and_then(Minor::parse),
            settled: self.settled,
            groups,
            failure_domain: if self.several_failure_domains {
                Err(Several)
            } else {
                Ok(self.failure_domain.map(Into::into))
            },
        })
    }
}

fn amounts(name: &str, capacity: &str, allocatable: &str) -> Result<Amounts, String> {
    let wrong = |rule: &dyn std::fmt::Display| format!("resource {:?}: {rule}", cut(name));
    labels::check_key(name).map_err(|rule| wrong(&rule))?;
    let amount = |text: &str| {
        let text = if text.len() <= LONGEST_VALUE { text } else { "" };
        quantity(text).map_err(|rule| wrong(&rule))
    };
    let (capacity, allocatable) = (amount(capacity)?, amount(allocatable)?);
    if allocatable > capacity {
        return Err(wrong(&"allocatable is more than capacity"));
    }
    Ok(Amounts { capacity, allocatable })
}

/// Returns the changes of the data that store what `own` has and `stored` lacks: the new values, and `None` for keys to
/// remove. The result keeps to the bounds: what was set aside goes first, then the oldest entries that no templates of
/// `used` need, then the oldest of all. Nothing that is new goes.
pub fn plan(
    stored: &Content,
    own: &BTreeMap<Key, Arc<Entry>>,
    used: &BTreeSet<Templates>,
) -> BTreeMap<String, Option<String>> {
    let news = own.iter().filter_map(|(key, entry)| match stored.entries.get(key) {
        None => Some((key, bounded(entry)?.1)),
        Some(known) => {
            let (merged, text) = bounded(&known.merge(entry))?;
            merged.is_news(known).then_some((key, text))
        }
    });
    // Each write brings as much as has room, and the next one the rest.
    let mut bytes = 0;
    let news: BTreeMap<_, _> = news
        .take(MOST_ENTRIES)
        .map(|(key, text)| (key, key.to_string().len() + text.len(), text))
        .take_while(|(_, size, _)| {
            bytes += size;
            bytes <= MOST_BYTES
        })
        .map(|(key, size, text)| (key, (size, text)))
        .collect();
    if news.is_empty() {
        return BTreeMap::new();
    }
    let others = stored.entries.iter().filter(|(key, _)| !news.contains_key(key));
    let is_used = |key: &Key| used.contains(&key.templates);
    let mut others: Vec<_> = others
        .map(|(key, entry)| {
            let name = key.to_string();
            let size = name.len() + print(entry).len();
            ((is_used(key), entry.seen.at), name, size)
        })
        .collect();
    others.sort_by(|(a, ..), (b, ..)| b.cmp(a));
    let mut count = news.len() + others.len() + stored.set_aside.len();
    let mut bytes = news.values().map(|(size, _)| size).sum::<usize>()
        + others.iter().map(|(.., size)| size).sum::<usize>()
        + stored.set_aside.iter().map(|it| it.bytes).sum::<usize>();
    let mut data: BTreeMap<_, _> = news.into_iter().map(|(key, (_, text))| (key.to_string(), Some(text))).collect();
    let is_full = |count: usize, bytes: usize| count > MOST_ENTRIES || bytes > MOST_BYTES;
    let odd = stored.set_aside.iter().map(|it| (it.key.clone(), it.bytes));
    let others = others.into_iter().rev().map(|(_, name, size)| (name, size));
    for (name, size) in odd.chain(others) {
        if !is_full(count, bytes) {
            break;
        }
        (count, bytes) = (count - 1, bytes - size);
        data.entry(name).or_insert(None);
    }
    data
}
