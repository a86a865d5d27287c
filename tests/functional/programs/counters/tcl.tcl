oo::class create Rectangle {
  variable width height
  constructor {w h} { set width $w; set height $h }
  method name {} { return rectangle }
  method show {} { return "[my name] [expr {$width * $height}]" }
}
oo::class create Square {
  superclass Rectangle
  constructor {side} { next $side $side }
  method name {} { return square }
}
proc counter {name step} {
  coroutine $name apply {{step} {
    yield
    while 1 { yield [incr count $step] }
  }} $step
}

counter ones 1
counter tens 10
puts "[ones] [ones] [tens] [ones] [tens]"
puts [[Square new 3] show]
puts [[Rectangle new 2 5] show]
