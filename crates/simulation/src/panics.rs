//! Records panics of tasks, which a runtime would swallow.

use std::{
    cell::{Cell, RefCell},
    panic,
    sync::Once,
};

thread_local! {
    static RECORDS: Cell<bool> = const { Cell::new(false) };
    static RECORDED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Records the panics of this thread instead of printing them.
pub(crate) fn record() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if RECORDS.get() {
                RECORDED.with_borrow_mut(|recorded| recorded.push(info.to_string()));
            } else {
                default(info);
            }
        }));
    });
    RECORDS.set(true);
}

/// Takes the panics since the last call.
pub(crate) fn taken() -> Vec<String> {
    RECORDED.with_borrow_mut(std::mem::take)
}
