# Looks at a program without running it: `check.rb SOURCE` (docs/DRIVERS.md, "The check").
# Ruby compiles the program, which runs nothing of it (not even BEGIN blocks); what it complains of is told.

source = ARGV[0]

def say(*fields)
  fields = fields.map { |text| text.to_s.scrub.delete("\0") }
  $stdout.binmode.write([fields.length, *fields].map { |text| "#{text}\0" }.join.b)
end

begin
  RubyVM::InstructionSequence.compile_file(source)
rescue SyntaxError => error
  # `main.rb:3: syntax error, unexpected end-of-input`, once per mistake, each followed by the line itself.
  found = error.message.scan(/^#{Regexp.escape(source)}:(\d+): (.*)$/)
  found = [["", error.message.lines.first.to_s.strip]] if found.empty?
  found.each { |line, text| say("error", line, "", text) }
end
