//! A parsed program: which kind of module it is, what it imports, and what is wrong with it.

use oxc_allocator::Allocator;
use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_diagnostics::OxcDiagnostic;
use oxc_parser::{ParseOptions, Parser};
use oxc_semantic::{Scoping, SemanticBuilder};
use oxc_span::{GetSpan, SourceType, Span};
use oxc_syntax::scope::ScopeFlags;
use serde::Serialize;

use crate::Language;

/// How Node is to run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// It imports, exports or awaits at the top level.
    Module,
    /// Everything else.
    CommonJs,
    /// A run of a live interpreter.
    Repl,
}

/// What is wrong, and where (1-based, in characters).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line of the source.
    pub line: u32,
    /// Column of the source.
    pub column: u32,
    /// What is wrong.
    pub message: String,
}

impl Problem {
    pub(crate) fn at(source: &str, offset: u32, message: impl Into<String>) -> Self {
        let before = source.get(..(offset as usize).min(source.len())).unwrap_or(source);
        let start = before.rfind('\n').map_or(0, |last| last + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before[start..].chars().count() + 1;
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        Self { line: number(line), column: number(column), message: message.into() }
    }
}

/// A program without syntax errors.
pub(crate) struct Parsed<'a> {
    pub(crate) program: &'a Program<'a>,
    pub(crate) kind: Kind,
    pub(crate) facts: Facts<'a>,
    /// Names and what refers to them, where that was asked for.
    pub(crate) scoping: Option<Scoping>,
}

/// Parses as a module and, where that fails, as a script: whichever it was meant to be.
pub(crate) fn parse<'a>(
    allocator: &'a Allocator,
    source: &'a str,
    language: Language,
    analysis: Analysis,
) -> Result<Parsed<'a>, Vec<Problem>> {
    let (module, script) = match language {
        Language::JavaScript => (SourceType::mjs(), SourceType::cjs()),
        Language::TypeScript => (SourceType::ts(), SourceType::ts().with_commonjs(true)),
    };
    let as_module = parse_as(allocator, source, module, analysis);
    match as_module {
        Ok(parsed) => Ok(parsed),
        Err((_, problems)) => match parse_as(allocator, source, script, analysis) {
            Ok(parsed) => Ok(parsed),
            // Neither: what is wrong with it depends on what it was meant to be.
            Err((is_module, other)) => Err(if is_module { problems } else { other }),
        },
    }
}

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Analysis {
    /// The grammar.
    Grammar,
    /// Also names: declared twice, exported but unknown, used where.
    Names,
}

fn parse_as<'a>(
    allocator: &'a Allocator,
    source: &'a str,
    source_type: SourceType,
    analysis: Analysis,
) -> Result<Parsed<'a>, (bool, Vec<Problem>)> {
    let options = ParseOptions {
        parse_regular_expression: analysis == Analysis::Names,
        allow_return_outside_function: source_type.is_commonjs(),
        ..ParseOptions::default()
    };
    let parsed = Parser::new(allocator, source, source_type).with_options(options).parse();
    let is_module = parsed.module_record.has_module_syntax;
    let problems = |list: &[OxcDiagnostic]| -> Vec<Problem> {
        list.iter().map(|diagnostic| problem(source, diagnostic)).collect()
    };
    if parsed.panicked || parsed.diagnostics.has_errors() {
        return Err((is_module, problems(&parsed.diagnostics)));
    }
    let program: &'a Program<'a> = allocator.alloc(parsed.program);
    let mut facts = Facts { source, ..Facts::default() };
    facts.visit_program(program);
    // A script that awaits at the top level parses only as a module, and the other way round.
    let assigns_exports = program.body.iter().any(|it| matches!(it, Statement::TSExportAssignment(_)));
    let kind = if (is_module && !assigns_exports) || facts.awaits { Kind::Module } else { Kind::CommonJs };
    let scoping = match analysis {
        Analysis::Grammar => None,
        Analysis::Names => {
            let built = SemanticBuilder::new().with_check_syntax_error(true).build(program);
            if built.diagnostics.has_errors() {
                return Err((is_module, problems(&built.diagnostics)));
            }
            Some(built.semantic.into_scoping())
        }
    };
    Ok(Parsed { program, kind, facts, scoping })
}

fn problem(source: &str, diagnostic: &OxcDiagnostic) -> Problem {
    // Of a name declared twice the later place is the mistake.
    let is_twice = diagnostic.message.contains("already been declared");
    let label = if is_twice { diagnostic.labels.last() } else { diagnostic.labels.first() };
    let offset = label.map_or(0, |label| label.offset());
    let hint = label.and_then(|label| label.label()).filter(|_| !is_twice);
    let hint = hint.map(|text| format!(": {text}")).unwrap_or_default();
    Problem::at(source, offset, format!("{}{hint}", diagnostic.message))
}

/// Things of a program that matter to whoever runs it.
#[derive(Default)]
pub(crate) struct Facts<'a> {
    source: &'a str,
    /// Awaits outside of any function.
    pub(crate) awaits: bool,
    /// Names of CommonJS that it uses.
    pub(crate) uses: Vec<&'static str>,
    /// What it imports, and where.
    pub(crate) imports: Vec<(&'a str, Span)>,
    depth: u32,
}

const COMMONJS_NAMES: [&str; 5] = ["exports", "require", "module", "__filename", "__dirname"];

impl<'a> Facts<'a> {
    fn import(&mut self, literal: &StringLiteral<'a>) {
        self.imports.push((literal.value.as_str(), literal.span));
    }

    /// Line of a place.
    pub(crate) fn line(&self, span: Span) -> u32 {
        Problem::at(self.source, span.start, "").line
    }
}

impl<'a> Visit<'a> for Facts<'a> {
    fn visit_function(&mut self, it: &Function<'a>, flags: ScopeFlags) {
        self.depth += 1;
        walk::walk_function(self, it, flags);
        self.depth -= 1;
    }

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        self.depth += 1;
        walk::walk_arrow_function_expression(self, it);
        self.depth -= 1;
    }

    fn visit_await_expression(&mut self, it: &AwaitExpression<'a>) {
        self.awaits |= self.depth == 0;
        walk::walk_await_expression(self, it);
    }

    fn visit_for_of_statement(&mut self, it: &ForOfStatement<'a>) {
        self.awaits |= it.r#await && self.depth == 0;
        walk::walk_for_of_statement(self, it);
    }

    fn visit_identifier_reference(&mut self, it: &IdentifierReference<'a>) {
        let known = COMMONJS_NAMES.into_iter().find(|name| *name == it.name.as_str());
        if let Some(name) = known.filter(|name| !self.uses.contains(name)) {
            self.uses.push(name);
        }
    }

    fn visit_import_declaration(&mut self, it: &ImportDeclaration<'a>) {
        if it.import_kind == ImportOrExportKind::Value {
            self.import(&it.source);
        }
    }

    fn visit_export_from_declaration(&mut self, it: &ExportFromDeclaration<'a>) {
        if it.export_kind == ImportOrExportKind::Value {
            self.import(&it.source);
        }
    }

    fn visit_export_all_declaration(&mut self, it: &ExportAllDeclaration<'a>) {
        if it.export_kind == ImportOrExportKind::Value {
            self.import(&it.source);
        }
    }

    fn visit_ts_external_module_reference(&mut self, it: &TSExternalModuleReference<'a>) {
        self.import(&it.expression);
        if !self.uses.contains(&"require") {
            self.uses.push("require");
        }
    }

    fn visit_import_expression(&mut self, it: &ImportExpression<'a>) {
        if let Expression::StringLiteral(literal) = &it.source {
            self.import(literal);
        }
        walk::walk_import_expression(self, it);
    }

    fn visit_call_expression(&mut self, it: &CallExpression<'a>) {
        let is_require = matches!(&it.callee, Expression::Identifier(name) if name.name == "require");
        if let (true, [Argument::StringLiteral(literal)]) = (is_require, it.arguments.as_slice()) {
            self.import(literal);
        }
        walk::walk_call_expression(self, it);
    }

    // Types import nothing and await nothing.
    fn visit_ts_type(&mut self, _: &TSType<'a>) {}
}

/// Where the last expression of a program is handed over.
pub(crate) fn last_expression(program: &Program<'_>) -> Option<LastExpression> {
    match program.body.split_last() {
        Some((Statement::ExpressionStatement(last), before)) => {
            let previous = before.last().map(GetSpan::span).or(program.directives.last().map(|it| it.span));
            let mut facts = Facts::default();
            facts.visit_expression(&last.expression);
            let after = previous.map(|span| span.end);
            Some(LastExpression { span: last.span, after, awaits: facts.awaits })
        }
        Some(_) => None,
        // A text alone is read as a directive.
        None => program.directives.last().map(|it| LastExpression {
            span: it.span,
            after: program.directives.iter().rev().nth(1).map(|it| it.span.end),
            awaits: false,
        }),
    }
}

/// The last expression, and where the statement before it ends.
pub(crate) struct LastExpression {
    pub(crate) span: Span,
    pub(crate) after: Option<u32>,
    awaits: bool,
}

impl LastExpression {
    /// What stands before and behind it. As the body of a function it keeps its own place in V8's eyes; as an
    /// argument its errors would be those of the call.
    pub(crate) fn around(&self, function: &str) -> (String, &'static str) {
        match self.awaits {
            true => (format!("await {function}(async()=>("), "\n),true)"),
            false => (format!("{function}(()=>("), "\n))"),
        }
    }
}
