#include "common/text/jinja/parser.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/jinja/expression_parser.h"
#include "common/text/jinja/lexer.h"

namespace foretoken::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens)
      : ExpressionParser(std::move(tokens)) {}

  absl::StatusOr<Body> Run() {
    FORETOKEN_ASSIGN_OR_RETURN(Body body, ParseBody({}));
    return body;
  }

 private:
  static std::unique_ptr<Stmt> NewStmt(Stmt::Kind kind, int line) {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = line;
    return stmt;
  }

  // Parses text, prints and tags up to one of the tags `end`, whose name is
  // then the current token and left to the caller; up to the end of the
  // template if `end` is empty.
  absl::StatusOr<Body> ParseBody(Names end) {
    const Level level(depth_);
    FORETOKEN_RETURN_IF_ERROR(CheckDepth());
    Body body;
    while (true) {
      const int line = current().line;
      switch (current().kind) {
        case Token::Kind::kEnd:
          if (end.size() == 0) return body;
          return Unexpected(absl::StrCat("a tag ", *end.begin()));
        case Token::Kind::kData: {
          auto stmt = NewStmt(Stmt::Kind::kText, line);
          stmt->text = Text(current().text);
          body.push_back(std::move(stmt));
          Advance();
          break;
        }
        case Token::Kind::kPrintBegin: {
          Advance();
          auto stmt = NewStmt(Stmt::Kind::kPrint, line);
          FORETOKEN_ASSIGN_OR_RETURN(ExprPtr expr, ParseTuple({}));
          stmt->exprs.push_back(std::move(expr));
          body.push_back(std::move(stmt));
          FORETOKEN_RETURN_IF_ERROR(Expect(Token::Kind::kPrintEnd, "}}"));
          break;
        }
        default: {
          FORETOKEN_RETURN_IF_ERROR(Expect(Token::Kind::kTagBegin, "a tag"));
          if (IsName(end)) return body;
          FORETOKEN_ASSIGN_OR_RETURN(auto stmt, ParseTag());
          body.push_back(std::move(stmt));
          FORETOKEN_RETURN_IF_ERROR(Expect(Token::Kind::kTagEnd, "%}"));
        }
      }
    }
  }

  // Parses the rest of a tag, whose colon is optional as in jinja2, and a body.
  absl::Status AddBody(Stmt& stmt, Names end) {
    SkipOp(":");
    FORETOKEN_RETURN_IF_ERROR(Expect(Token::Kind::kTagEnd, "%}"));
    FORETOKEN_ASSIGN_OR_RETURN(Body body, ParseBody(end));
    stmt.bodies.push_back(std::move(body));
    return absl::OkStatus();
  }

  // As AddBody, and skips the name of the tag that ends it; its "%}" is read by
  // ParseBody.
  absl::Status AddLastBody(Stmt& stmt, absl::string_view end) {
    FORETOKEN_RETURN_IF_ERROR(AddBody(stmt, {end}));
    Advance();
    return absl::OkStatus();
  }

  using StmtOr = absl::StatusOr<std::unique_ptr<Stmt>>;

  StmtOr ParseTag() {
    const int line = current().line;
    const std::string name = current().text;
    if (!Is(Token::Kind::kName)) return Unexpected("the name of a tag");
    Advance();
    if (name == "if") return ParseIf(line);
    if (name == "for") return ParseFor(line);
    if (name == "set") return ParseSet(line);
    if (name == "macro") return ParseMacro(line);
    if (name == "call") return ParseCallBlock(line);
    if (name == "filter") return ParseFilterBlock(line);
    if (name == "with") return ParseWith(line);
    if (name == "print") return ParsePrint(line);
    if (name == "break") return NewStmt(Stmt::Kind::kBreak, line);
    if (name == "continue") return NewStmt(Stmt::Kind::kContinue, line);
    // Marks the assistant's turns for training; for output it is a scope.
    if (name == "generation") {
      auto stmt = NewStmt(Stmt::Kind::kScope, line);
      FORETOKEN_RETURN_IF_ERROR(AddLastBody(*stmt, "endgeneration"));
      return stmt;
    }
    return Fail(absl::StrCat("unknown or unsupported tag '", name, "'"));
  }

  StmtOr ParseIf(int line) {
    auto stmt = NewStmt(Stmt::Kind::kIf, line);
    while (true) {
      FORETOKEN_ASSIGN_OR_RETURN(
          ExprPtr test,
          ParseTuple({}, /*in_parentheses=*/false, /*with_condition=*/false));
      // Tests and bodies in order; `else` adds a body without a test.
      stmt->exprs.push_back(std::move(test));
      FORETOKEN_RETURN_IF_ERROR(AddBody(*stmt, {"elif", "else", "endif"}));
      if (SkipName("elif")) continue;
      if (SkipName("else")) {
        FORETOKEN_RETURN_IF_ERROR(AddLastBody(*stmt, "endif"));
      } else {
        Advance();
      }
      return stmt;
    }
  }

  StmtOr ParseFor(int line) {
    auto stmt = NewStmt(Stmt::Kind::kFor, line);
    FORETOKEN_ASSIGN_OR_RETURN(stmt->target, ParseTarget({"in"}, false));
    FORETOKEN_RETURN_IF_ERROR(ExpectName("in"));
    FORETOKEN_ASSIGN_OR_RETURN(
        ExprPtr items, ParseTuple({"recursive"}, /*in_parentheses=*/false,
                                  /*with_condition=*/false));
    stmt->exprs.push_back(std::move(items));
    // The items were read without conditions, so that this `if` filters them.
    ExprPtr test;
    if (SkipName("if")) {
      FORETOKEN_ASSIGN_OR_RETURN(test, ParseExpression());
    }
    stmt->exprs.push_back(std::move(test));
    if (IsName("recursive")) return Fail("recursive loops are not supported");
    FORETOKEN_RETURN_IF_ERROR(AddBody(*stmt, {"endfor", "else"}));
    if (SkipName("else")) {
      FORETOKEN_RETURN_IF_ERROR(AddLastBody(*stmt, "endfor"));
    } else {
      Advance();
      stmt->bodies.emplace_back();
    }
    return stmt;
  }

  StmtOr ParseSet(int line) {
    auto stmt = NewStmt(Stmt::Kind::kSet, line);
    FORETOKEN_ASSIGN_OR_RETURN(stmt->target, ParseTarget({}, true));
    if (SkipOp("=")) {
      FORETOKEN_ASSIGN_OR_RETURN(ExprPtr value, ParseTuple({}));
      stmt->exprs.push_back(std::move(value));
      return stmt;
    }
    // Without "=": {% set x | filter %}text{% endset %}.
    stmt->kind = Stmt::Kind::kSetBlock;
    ExprPtr filters;
    while (SkipOp("|")) {
      FORETOKEN_ASSIGN_OR_RETURN(filters, ParseFilter(std::move(filters)));
    }
    stmt->exprs.push_back(std::move(filters));
    FORETOKEN_RETURN_IF_ERROR(AddLastBody(*stmt, "endset"));
    return stmt;
  }

  // Parameters with defaults come last, as in Python.
  absl::Status ParseParameters(Stmt& stmt) {
    FORETOKEN_RETURN_IF_ERROR(ExpectOp("("));
    while (!IsOp(")")) {
      Parameter parameter;
      FORETOKEN_ASSIGN_OR_RETURN(parameter.name, ExpectAnyName());
      if (SkipOp("=")) {
        FORETOKEN_ASSIGN_OR_RETURN(parameter.otherwise, ParseExpression());
      } else if (!stmt.parameters.empty() &&
                 stmt.parameters.back().otherwise != nullptr) {
        return Fail("non-default argument follows default argument");
      }
      stmt.parameters.push_back(std::move(parameter));
      if (!SkipOp(",")) break;
    }
    return ExpectOp(")");
  }

  absl::Status ParseMacroBody(Stmt& stmt, absl::string_view end) {
    // `varargs` and `kwargs` in the body belong to this macro, not to an
    // enclosing one.
    Stmt* const outer = std::exchange(macro_, &stmt);
    const absl::Status parsed = AddLastBody(stmt, end);
    macro_ = outer;
    return parsed;
  }

  StmtOr ParseMacro(int line) {
    auto stmt = NewStmt(Stmt::Kind::kMacro, line);
    FORETOKEN_ASSIGN_OR_RETURN(stmt->name, ExpectAnyName());
    FORETOKEN_RETURN_IF_ERROR(ParseParameters(*stmt));
    FORETOKEN_RETURN_IF_ERROR(ParseMacroBody(*stmt, "endmacro"));
    return stmt;
  }

  StmtOr ParseCallBlock(int line) {
    auto stmt = NewStmt(Stmt::Kind::kCallBlock, line);
    // The body is a macro that the called one finds under this name.
    stmt->name = "caller";
    if (IsOp("(")) FORETOKEN_RETURN_IF_ERROR(ParseParameters(*stmt));
    FORETOKEN_ASSIGN_OR_RETURN(ExprPtr call, ParseExpression());
    if (call->kind != Expr::Kind::kCall) return Unexpected("a call");
    stmt->exprs.push_back(std::move(call));
    FORETOKEN_RETURN_IF_ERROR(ParseMacroBody(*stmt, "endcall"));
    return stmt;
  }

  StmtOr ParseFilterBlock(int line) {
    auto stmt = NewStmt(Stmt::Kind::kFilterBlock, line);
    FORETOKEN_ASSIGN_OR_RETURN(ExprPtr filters, ParseFilter(nullptr));
    while (SkipOp("|")) {
      FORETOKEN_ASSIGN_OR_RETURN(filters, ParseFilter(std::move(filters)));
    }
    stmt->exprs.push_back(std::move(filters));
    FORETOKEN_RETURN_IF_ERROR(AddLastBody(*stmt, "endfilter"));
    return stmt;
  }

  StmtOr ParseWith(int line) {
    auto stmt = NewStmt(Stmt::Kind::kWith, line);
    while (!Is(Token::Kind::kTagEnd)) {
      if (!stmt->targets.empty()) FORETOKEN_RETURN_IF_ERROR(ExpectOp(","));
      FORETOKEN_ASSIGN_OR_RETURN(ExprPtr target, ParseOneTarget(false));
      FORETOKEN_RETURN_IF_ERROR(ExpectOp("="));
      FORETOKEN_ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      stmt->targets.push_back(std::move(target));
      stmt->exprs.push_back(std::move(value));
    }
    FORETOKEN_RETURN_IF_ERROR(AddLastBody(*stmt, "endwith"));
    return stmt;
  }

  StmtOr ParsePrint(int line) {
    auto stmt = NewStmt(Stmt::Kind::kPrint, line);
    while (!Is(Token::Kind::kTagEnd)) {
      if (!stmt->exprs.empty()) FORETOKEN_RETURN_IF_ERROR(ExpectOp(","));
      FORETOKEN_ASSIGN_OR_RETURN(ExprPtr expr, ParseExpression());
      stmt->exprs.push_back(std::move(expr));
    }
    return stmt;
  }
};

}  // namespace

absl::StatusOr<Body> ParseTemplate(absl::string_view source) {
  FORETOKEN_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace foretoken::jinja
