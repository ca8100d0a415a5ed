//! `--watch`: on a terminal the output is redrawn; elsewhere it is printed again after a change. A server that
//! doesn't answer is reported, and asked again.

use std::{
    cell::Cell,
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
};

use jiff::Timestamp;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::MissedTickBehavior,
};

use super::{
    Client, GroupsConfig, GroupsError, Output, output,
    printing::{self, PrintError},
};

const HOME: &str = "\x1b[H";
const CLEAR_TO_END_OF_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
/// Switches to the alternate screen without a cursor. Long lines are cut instead of wrapped, so that each line of
/// text is one line of the screen.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Restores the screen.
const END: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// Watches until Ctrl-C or SIGTERM. The first request must succeed, and find the groups that were asked for.
pub(super) async fn watch(config: &GroupsConfig, client: &Client) -> Result<(), GroupsError> {
    let mut terminated = signal(SignalKind::terminate())?;
    let terminal = io::stdout().is_terminal();
    let begun = Cell::new(false);
    let watching = async {
        let mut screen = if terminal { Screen::Terminal } else { Screen::Pipe { last: None } };
        let mut ticks = tokio::time::interval(config.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let frame = frame(config, client).await;
            let frame = if begun.get() { frame } else { Ok(frame?) };
            if !begun.replace(true) && terminal {
                printing::print(&mut io::stdout(), BEGIN)?;
            }
            screen.show(frame, config, &Timestamp::now().strftime("%FT%TZ").to_string())?;
        }
    };
    let ended = tokio::select! {
        ended = watching => ended,
        signal = tokio::signal::ctrl_c() => signal.map_err(GroupsError::from),
        _ = terminated.recv() => Ok(()),
    };
    if terminal && begun.get() {
        // The terminal is restored, however the watch ended.
        let restored = printing::print(&mut io::stdout(), END);
        ended.and(restored.map_err(GroupsError::from))
    } else {
        ended
    }
}

/// One output.
struct Frame {
    text: String,
    /// The text that is compared to detect a change.
    key: String,
    warnings: Vec<String>,
}

async fn frame(config: &GroupsConfig, client: &Client) -> Result<Frame, GroupsError> {
    let state = config.filter.apply(client.state(config.cluster.as_ref(), config.filter.instances).await?)?;
    let text = output::render(&state, config.output, &config.filter)?;
    let key = match config.output {
        Output::Table | Output::Wide => text.clone(),
        // Ages and counters of informers change all the time.
        Output::Json | Output::Yaml => serde_json::to_string(&(&state.groups, &state.left_out, state.head.ready))
            .map_err(|error| PrintError::Form(error.to_string()))?,
    };
    Ok(Frame { text, key, warnings: output::warnings(&state, config.output, &config.filter) })
}

enum Screen {
    Terminal,
    Pipe { last: Option<Result<String, String>> },
}

impl Screen {
    fn show(&mut self, frame: Result<Frame, GroupsError>, config: &GroupsConfig, now: &str) -> Result<(), GroupsError> {
        match self {
            Self::Terminal => {
                let text = match frame {
                    Ok(Frame { text, warnings, .. }) => {
                        let mut all = format!("{now}   {}, every {:?}\n\n", config.server, config.interval);
                        for warning in warnings {
                            all.extend(["warning: ", &warning, "\n"]);
                        }
                        all + &text
                    }
                    Err(error) => format!("{now}\n\nerror: {error}\n"),
                };
                let rows = terminal_size::terminal_size().map_or(usize::MAX, |(_, height)| usize::from(height.0));
                printing::print(&mut io::stdout(), &drawn(&text, rows))?;
            }
            Self::Pipe { last } => {
                let key = match &frame {
                    Ok(frame) => Ok(frame.key.clone()),
                    Err(error) => Err(error.to_string()),
                };
                if last.as_ref() == Some(&key) {
                    return Ok(());
                }
                let separator = match (&last, config.output) {
                    (None, Output::Json | Output::Yaml) | (Some(_), Output::Json) => String::new(),
                    (Some(_), Output::Yaml) => "---\n".to_owned(),
                    (None, Output::Table | Output::Wide) => format!("{now}\n"),
                    (Some(_), Output::Table | Output::Wide) => format!("\n{now}\n"),
                };
                match frame {
                    Ok(frame) => {
                        for warning in frame.warnings {
                            eprintln!("warning: {warning}");
                        }
                        // A closed pipe ends the watch, since nobody would ever read further output.
                        let mut stdout = io::stdout();
                        let written = stdout.write_all(format!("{separator}{}", frame.text).as_bytes());
                        written.and_then(|()| stdout.flush()).map_err(PrintError::from)?;
                    }
                    Err(error) => eprintln!("error: {error}"),
                }
                *last = Some(key);
            }
        }
        Ok(())
    }
}

/// Returns the text with the control sequences that draw it over the screen's content, cut to its height.
fn drawn(text: &str, rows: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    let mut drawn = HOME.to_owned();
    let fits = lines.len() < rows;
    let shown = if fits { lines.len() } else { rows.saturating_sub(2) };
    for line in lines.iter().take(shown) {
        drawn.push_str(line);
        drawn.push_str(CLEAR_TO_END_OF_LINE);
        drawn.push_str("\r\n");
    }
    if !fits {
        // Writing to a String can't fail.
        let _ = write!(drawn, "… {} more lines{CLEAR_TO_END_OF_LINE}\r\n", lines.len() - shown);
    }
    drawn + CLEAR_BELOW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_replaces_the_one_that_stood_there() {
        assert_eq!(drawn("a\nb\n", 10), "\x1b[Ha\x1b[K\r\nb\x1b[K\r\n\x1b[J");
    }

    #[test]
    fn the_output_counts_the_changes_or_lines_that_do_not_fit() {
        let text = drawn("1\n2\n3\n4\n5\n", 4);
        assert_eq!(text, "\x1b[H1\x1b[K\r\n2\x1b[K\r\n… 3 more lines\x1b[K\r\n\x1b[J");
    }
}
