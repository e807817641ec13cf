"""The live picture: what Python sends (`messages`, `layout`) and the JavaScript that draws it
(`static/`).
"""
