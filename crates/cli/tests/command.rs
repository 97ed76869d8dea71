//! The command as a whole: help, versions, exit codes.

mod forebay;

use forebay::{command, finish, run};

#[test]
fn help_has_examples_for_each_subcommand() {
    for arguments in [
        &["--help"][..],
        &["index", "--help"],
        &["inspect", "--help"],
        &["order", "--help"],
        &["state", "--help"],
        &["state", "show", "--help"],
        &["state", "skip", "--help"],
        &["state", "diff", "--help"],
    ] {
        let help = run(arguments).ok();
        assert!(help.contains("Usage: forebay"), "{help}");
        assert!(help.contains("Examples:\n  forebay "), "{help}");
        assert!(!help.contains('\x1b'), "{help}");
    }
    let help = run(&["--help"]).ok();
    assert!(help.contains("Exit codes:\n  0  done\n"), "{help}");
    assert!(help.contains("NO_COLOR"), "{help}");
}

#[test]
fn the_version_is_that_of_the_package() {
    let expected = format!("forebay {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run(&["--version"]).ok(), expected);
}

#[test]
fn a_mistyped_subcommand_is_a_usage_error_with_a_suggestion() {
    let error = run(&["oder"]).fails(2);
    assert!(error.contains("unrecognized subcommand 'oder'"), "{error}");
    assert!(error.contains("'order'"), "{error}");
}

#[test]
fn without_a_subcommand_the_help_is_shown_as_an_error() {
    for arguments in [&[][..], &["state"]] {
        let ran = run(arguments);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""));
        assert!(ran.err.contains("Usage: forebay"), "{}", ran.err);
    }
}

#[test]
fn what_is_not_a_terminal_gets_no_colour() {
    for arguments in [&["inspect", "/nowhere"][..], &["order", "--samples", "x"]] {
        let ran = finish(command(arguments).env("TERM", "xterm-256color"));
        assert!(!ran.err.contains('\x1b'), "{}", ran.err);
    }
}

#[test]
fn the_library_gives_the_exit_code_and_lives_on() {
    let code = |line: &str| forebay_cli::run(line.split(' ').map(str::to_owned));
    assert_eq!(code("forebay order --samples 0 --seed 1"), 0);
    assert_eq!(code("forebay state show /nowhere"), 1);
    assert_eq!(code("forebay order"), 2);
}
